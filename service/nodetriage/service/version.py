"""Which version this is: pyproject.toml takes it from here. Asking the installed package costs a process 2 MB."""

VERSION = "0.1.0"
