"""Every sentence that states a guarantee, or that there is none."""

SETS = (
    "Sets: for a model like these and a variable picked at random, a state drawn from its true "
    "marginal is in the set with probability {level} or more; on average over the variables, not "
    "for each of them."
)
BANDS = (
    "Bands: with probability {level} or more over models like these, at least {share} of the "
    "variables have all their true probabilities within their bands; which of them do not is not "
    "known."
)
GROUPS = (
    "Like these: {count:,} models with known marginals, answered {how}, {own:,} of them of "
    "its structure ({structure}); both promises also hold among models of its size and coupling "
    "({ranges})."
)
WEIGHTED = (
    "Like these: models as in {target}, by weights on {count:,} models with known marginals, "
    "answered {how} (effective number {effective:.0f}, AUC {auc:.2f}); estimated weights may "
    "cost some of the probability."
)
EXACT = "Exact: sets and bands are those of the true marginals, and bands have no width."
UNLIKE = "No guarantee: this model is unlike the calibration set ({why}); nearest group: {nearest}."
DOUBTING = (
    "No guarantee: this answer is unlike those of the calibration ({why}); nearest group: "
    "{nearest}."
)
LESS_WORK = (
    "No guarantee: this answer is less work than those of the calibration ({why}); the machine may "
    "be slow or busy, so give it more time. Nearest group: {nearest}."
)
MORE_WORK = (
    "No guarantee: this answer is more work than any of the calibration ({work:.2g} core-seconds, "
    "there at most {most:.2g}); nearest group: {nearest}."
)
NO_CALIBRATION = "No guarantee: there is no calibration for this engine; icgi calibrate makes one."
LESS_BUDGET = (
    "No guarantee: the calibration is for answers of at least {budget}, this one was allowed less."
)
LIMITED = (
    "No guarantee: the calibration is for answers that may take as long as they need, this one had "
    "a limit; leave --seconds and --iterations out."
)
OWN_BANDS = "Bands are the engine's own estimate of its error; they are not calibrated."
CALIBRATED = "The bands are calibrated: {promise}"
NO_BANDS = "No bands: the engine has no estimate of its error."
THREE = (
    "Entropy is the model's own uncertainty, a band the error of the method, unfamiliarity how far "
    "the model is from those of the calibration."
)


def percent(share: float) -> str:
    """Share as people read it: 90 %, 97.5 %."""
    return f"{100 * share:.6g} %"


def unfamiliarity(value: float, refused: bool = False) -> str:
    """How far a model is from the calibration models; whether that is why nothing is promised."""
    near = ", which is not why nothing is promised" if refused else "; beyond 1 nothing is promised"
    beyond = near if value <= 1 else ", beyond 1: nothing is promised"
    return f"unfamiliarity {value:.2f}{beyond}" if value < 1e3 else "unfamiliarity beyond measure"
