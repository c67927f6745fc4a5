"""Permissions: the signing keys of the controller and the ACLs of the broker."""
