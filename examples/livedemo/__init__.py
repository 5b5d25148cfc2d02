"""The parts of `make run`: see ../demo.py, which puts them together."""
