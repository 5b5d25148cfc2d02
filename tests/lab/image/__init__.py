"""The container image of examples/deploy/image: built for real, and run without rights. `make
image`."""
