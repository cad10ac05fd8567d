"""Name → table: the one dictionary."""

from collections.abc import Mapping

from icgi.bench.table import Table
from icgi.bench.tables import anytime, speed, table1, table2, table3, table4, uai22

TABLES: Mapping[str, Table] = {
    module.TABLE.name: module.TABLE
    for module in (table1, table2, table3, table4, anytime, speed, uai22)
}
