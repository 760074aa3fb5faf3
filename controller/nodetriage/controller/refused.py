"""A peer that the controller refuses: raised where the reason is found, answered by the service."""

import grpc


class Refused(Exception):
    """The call ends with this status and this reason."""

    def __init__(self, code: grpc.StatusCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
