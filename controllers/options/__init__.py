"""How options are declared: once, beside the field that they set. No I/O.

Declarations in each controller's `registration.py`, and a vendor's, become flags, --help, checks
and the reference page (`declare.py`). Light on purpose: the command line reads every class of
options, and imports no controller for it."""

from cloudprovider.kinds import BOOL, Kind
from controllers.options.declare import (
    between,
    cluster_name_option,
    drain_timeout_option,
    group,
    no_limit_at_zero,
    not_empty,
    not_negative,
    one_of,
    option,
    positive,
)
from controllers.options.kinds import (
    ADDRESS,
    CLASSES,
    DURATION,
    FLOAT,
    INT,
    INTEGERS,
    IP,
    LIST,
    NAME,
    PATH,
    STRING,
    SWITCHES,
    URL,
    VERSION,
)

__all__ = [
    # to declare
    "option",
    "group",
    "cluster_name_option",
    "drain_timeout_option",
    # kinds of values
    "ADDRESS",
    "BOOL",
    "CLASSES",
    "DURATION",
    "FLOAT",
    "INT",
    "INTEGERS",
    "IP",
    "LIST",
    "NAME",
    "PATH",
    "STRING",
    "SWITCHES",
    "URL",
    "VERSION",
    "Kind",
    # checks
    "between",
    "no_limit_at_zero",
    "not_empty",
    "not_negative",
    "one_of",
    "positive",
]
