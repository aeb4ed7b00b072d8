"""Drives a running controller over its gRPC API: two steps, then their metrics.

    docs/examples/setup.sh
    deploy/launch.sh configs/quickstart.yaml --start-paused &
    .deps/examples/bin/python docs/examples/drive_training.py unix:runs/tandem/quickstart/controller.sock

A run that listens on a port, as with cluster.listen=127.0.0.1:7001, answers to who has its token: name its
directory as well (docs/guides/security.md):

    .deps/examples/bin/python docs/examples/drive_training.py 127.0.0.1:7001 runs/tandem/quickstart
"""

import pathlib
import sys
import uuid

import grpc
from tandem.v1 import controller_pb2 as pb
from tandem.v1 import controller_pb2_grpc


class WithToken(grpc.UnaryUnaryClientInterceptor):
    """Sends the run's token. It is read for each call: a controller that is restarted makes a new one."""

    def __init__(self, run_dir):
        self._file = pathlib.Path(run_dir, "token")

    def intercept_unary_unary(self, continuation, details, request):
        metadata = [*(details.metadata or []), ("authorization", f"Bearer {self._file.read_text().strip()}")]
        return continuation(details._replace(metadata=metadata), request)


def connect(address, run_dir=None):
    channel = grpc.insecure_channel(address)
    if run_dir is not None:
        channel = grpc.intercept_channel(channel, WithToken(run_dir))
    return controller_pb2_grpc.TandemServiceStub(channel)


def main(*where):
    api = connect(*where)
    status = api.GetStatus(pb.GetStatusRequest(), timeout=10, wait_for_ready=True)
    print(f"run {status.run_id}: step {status.step} of {status.total_steps}")
    # A request id makes the call idempotent: sent twice, it still trains two steps.
    operation = api.Run(pb.RunRequest(request_id=str(uuid.uuid4()), steps=2), timeout=10)
    while not operation.done:
        wait = pb.WaitOperationRequest(id=operation.id, timeout_seconds=5)
        operation = api.WaitOperation(wait, timeout=30)
    if operation.error:
        raise SystemExit(operation.error)
    steps = api.ListSteps(pb.ListStepsRequest(first_step=operation.first_step), timeout=10).steps
    for step in steps:
        print(f"step {step.step}: reward {step.metrics['critic/rewards/mean']:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
