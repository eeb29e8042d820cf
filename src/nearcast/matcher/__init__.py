"""The facade over the indexes: values in, exact matches out.

`facade` ties together: `encode` and `bulk` turn values into rows, an index finds
candidates, `kernels.verify` and `residual` check what it does not decide, `extended`
finds what points cannot, `explain` tells why.
"""

from nearcast.matcher.explain import Explanation
from nearcast.matcher.facade import Matcher

__all__ = ["Explanation", "Matcher"]
