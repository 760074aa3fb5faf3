"""Which order concerns whom. Pure."""

from nodetriage.controller.policy import breaker, common_mode, maintenance, recovery
from nodetriage.controller.policy.notices import Reply
from nodetriage.controller.policy.orders import fleet, nodes
from nodetriage.controller.policy.orders.command import OperatorCommand
from nodetriage.controller.policy.unit_of_work import UnitOfWork
from nodetriage.controller.settings.rules import Policy


def take(work: UnitOfWork, event: OperatorCommand, policy: Policy) -> tuple[str, ...]:
    """Does what an operator orders and replies; returns the nodes whose case is another one now."""
    freed: tuple[str, ...] = (event.node,) if event.node else ()
    if event.verb == "close_incident":
        freed, why = common_mode.close(work, event)
    elif event.verb in ("close_breaker", "open_breaker", "pause", "unpause"):
        why = _fleet(work, event)
        # What was held is weighed against the present, all of it: nothing old is played back.
        freed = tuple(n.node for n in work.nodes()) if event.verb == "close_breaker" else ()
    else:
        why = _node(work, event, policy)
    if why:
        about = f"{event.verb} {event.node}" if event.node else event.verb
        work.reply = Reply(accepted=False, text=f"{about} is refused: {why}")
        return ()
    work.reply = Reply(accepted=True)
    return freed


def _fleet(work: UnitOfWork, event: OperatorCommand) -> str:
    match event.verb:
        case "close_breaker":
            return "" if breaker.close(work, event) else "the breaker is not open, or no reason was given"
        case "open_breaker":
            return breaker.open_by_hand(work, event)
        case "pause":
            return fleet.pause(work, event)
        case _:
            return fleet.unpause(work, event)


def _node(work: UnitOfWork, event: OperatorCommand, policy: Policy) -> str:
    match event.verb:
        case "drain":
            return nodes.drain(work, event, policy)
        case "undrain":
            return recovery.undrain(work, event, policy)
        case "release":
            return nodes.release(work, event, policy)
        case "retire":
            return nodes.retire(work, event)
        case "ticket":
            return nodes.ticket(work, event)
        case "accept":
            return nodes.accept(work, event)
        case "lemon_set" | "lemon_lift":
            return nodes.lemon(work, event, policy)
        case _:
            return maintenance.command(work, event, policy.maintenance)
