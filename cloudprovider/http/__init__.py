"""What every cloud with an HTTP API needs: client, pages, tokens, operations, marks (stage 5, cloud
call).

A vendor's own code is the paths and fields of the API. See docs/guides/http.md. Not imported by
`import cloudprovider`: urllib3 and pydantic are loaded by those who need them.
"""

from cloudprovider.http import answers, cached, client, marks, operations, tokens
from cloudprovider.http.answers import *
from cloudprovider.http.cached import *
from cloudprovider.http.client import *
from cloudprovider.http.marks import *
from cloudprovider.http.operations import *
from cloudprovider.http.tokens import *

__all__: list[str] = []
__all__ += answers.__all__
__all__ += cached.__all__
__all__ += client.__all__
__all__ += marks.__all__
__all__ += operations.__all__
__all__ += tokens.__all__
