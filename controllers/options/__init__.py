"""How options are declared: once, beside the field that they set. Stage: before the first one, no I/O.

What enters is the declarations in the `options.py` of each controller, of `cloudcalls` and of `app`; what leaves is the
flags, --help, the checks and the reference page. Light on purpose: the command line reads every class of options, and
imports no controller for it.
"""

from controllers.options.declare import (
    CLASSIFIED,
    Flag,
    between,
    fill,
    flags_of,
    group,
    no_limit_at_zero,
    not_empty,
    not_negative,
    one_of,
    option,
    positive,
    values_of,
)
from controllers.options.kinds import (
    ADDRESS,
    BOOL,
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
    Kind,
    display,
    show_duration,
    without_user,
)
from controllers.options.podnetwork import (
    CIDRS,
    DEFAULT_MASK_SIZES,
    allocate_node_cidrs_option,
    at_most_one_of_each_family,
    cluster_cidrs_option,
    given_mask_sizes,
    mask_size_option,
    parse_cluster_cidrs,
)
from controllers.options.shared import DEFAULT_CLUSTER_NAME, cluster_name_option, drain_timeout_option

__all__ = [
    # to declare
    "option",
    "group",
    "cluster_name_option",
    "drain_timeout_option",
    # to declare, about the pods' network
    "CIDRS",
    "DEFAULT_MASK_SIZES",
    "allocate_node_cidrs_option",
    "at_most_one_of_each_family",
    "cluster_cidrs_option",
    "given_mask_sizes",
    "mask_size_option",
    "parse_cluster_cidrs",
    "DEFAULT_CLUSTER_NAME",
    # kinds of values
    "ADDRESS",
    "BOOL",
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
    # to read
    "Flag",
    "flags_of",
    "fill",
    "values_of",
    "CLASSIFIED",
    "display",
    "show_duration",
    "without_user",
]
