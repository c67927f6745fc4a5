"""The standby model: who takes over each key group when its owner is lost, so that survivors stay balanced (N-1)."""
