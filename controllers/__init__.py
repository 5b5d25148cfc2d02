"""What runs the contract of `cloudprovider`: runtime, gateway to vendor code, controllers, and the
manager's program.

Both import names are generic: a folder of the same name elsewhere on the import path ends in an
error with both paths, before anything of it is imported
(`cloudprovider/loading/importnames.py`)."""

from importlib.util import find_spec
from pathlib import Path


def _check_cloudprovider() -> None:
    ours = Path(__file__).resolve().parents[1] / "cloudprovider"
    spec = find_spec("cloudprovider")
    found = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
    if found != ours / "__init__.py":
        raise ImportError(
            f"import 'cloudprovider' finds {found or 'nothing'} in place of {ours}, which belongs to "
            f"kubernetes-cloud-provider. Rename the first, or install kubernetes-cloud-provider again."
        )


_check_cloudprovider()
