"""How many hot spares cover the nodes in repair: a quantile of the Poisson number of nodes out at once."""

from nodetriage.analysis.models.figure import Figure, OutOfDomain, not_negative, positive, share


def nodes_out(nodes: float, rf_per_1000_node_days: float, repair_days: float) -> float:
    """Mean number of nodes in repair, N rf MTTR; Poisson whatever the spread of repair times. Raises OutOfDomain."""
    positive(nodes=nodes)
    not_negative(rf_per_1000_node_days=rf_per_1000_node_days, repair_days=repair_days)
    mean = nodes * rf_per_1000_node_days / 1000 * repair_days
    if mean > nodes * 100:
        raise OutOfDomain(f"{mean:.3g} of {nodes:g} nodes would be in repair at once: repair cannot keep up")
    return mean


def needed(nodes: float, rf_per_1000_node_days: float, repair_days: float, target: float) -> Figure:
    """Least number of spares with which no job waits for a node in `target` of all time. Raises OutOfDomain."""
    from scipy.stats import poisson

    share(target=target)
    mean = nodes_out(nodes, rf_per_1000_node_days, repair_days)
    value = float(poisson.ppf(target, mean)) if mean > 0 else 0.0
    notes = (
        f"{mean:.4g} nodes in repair on average",
        "a spare counts only where it fits: the same GPUs, software and fabric domain",
    )
    return Figure("hot spares", value, "nodes", notes=notes)


def repair_days_covered(spares: int, nodes: float, rf_per_1000_node_days: float, target: float) -> Figure:
    """The longest mean repair that so many spares cover. Raises OutOfDomain."""
    from scipy.stats import gamma

    share(target=target)
    positive(nodes=nodes, rf_per_1000_node_days=rf_per_1000_node_days)
    if spares < 0:
        raise OutOfDomain(f"spares: expected 0 or more, got {spares}")
    # P(Poisson(m) <= s) = P(Gamma(s + 1) > m)
    mean = float(gamma.isf(target, spares + 1))
    return Figure("mean repair covered", mean / (nodes * rf_per_1000_node_days / 1000), "days")


def availability(rf_per_1000_node_days: float, repair_days: float) -> Figure:
    """Share of time that one node is up: 1 / (1 + rf MTTR). Raises OutOfDomain."""
    not_negative(rf_per_1000_node_days=rf_per_1000_node_days, repair_days=repair_days)
    return Figure("node availability", 1 / (1 + rf_per_1000_node_days / 1000 * repair_days), "share of time")
