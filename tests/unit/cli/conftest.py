from tests.unit.process.conftest import restored

__all__ = ["restored"]
