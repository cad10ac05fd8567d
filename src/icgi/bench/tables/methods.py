"""Columns that several tables share: the paper's methods, and further ones by name."""

from icgi.bench.table import Column, Metric

MAE = Metric("mae", "MAE", digits=4)
KL = Metric("kl", "KL", digits=4)
MAX = Metric("max", "max error", digits=3)
HELLINGER = Metric("hellinger", "Hellinger", digits=4)
SCORE = Metric("score", "UAI-2022 score", larger_is_better=True, digits=2)

MF = Column("MF", ("mf",), random=True, claimed_as="MF")
LBP = Column("LBP", tuple(f"lbp:damping={d}" for d in ("0", "0.3", "0.5")), claimed_as="LBP")
TRBP = Column("TRBP", ("trbp",), claimed_as="TRBP")
GBP = Column("GBP", ("gbp",), claimed_as="GBP")
GNN_BP = Column("GNN-BP", ("gnn-bp",), trained=True, claimed_as="GNN-BP")
BPNN = Column("BPNN", ("bpnn",), trained=True, claimed_as="BPNN")
DIRECT = Column("Direct GNN", ("direct-gnn",), trained=True, claimed_as="Direct GNN")
ICGI = Column("ICG-I", ("icgi:paper",), trained=True, claimed_as="ICG-I")
FAST = Column("icgi:fast", ("icgi:fast",))
TTVE = Column("ttve", ("ttve",))
PT = Column("pt", ("pt",), random=True)
AUTO = Column("auto", ("auto",), random=True)
EXACT = Column("exact", ("exact",))
