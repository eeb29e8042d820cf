"""What `nearcast bench serve` does to a server, one kind of load a module."""
