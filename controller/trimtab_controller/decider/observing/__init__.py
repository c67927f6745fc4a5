"""What windows show: views of apps, loads, demand, what is away or unknown.  Pure."""
