"""Drives a running controller over its gRPC API: two steps, then their metrics.

    docs/examples/setup.sh
    deploy/launch.sh configs/quickstart.yaml --start-paused &
    .deps/examples/bin/python docs/examples/drive_training.py unix:runs/tandem/quickstart/controller.sock

On a port of 127.0.0.1 every call must have the run's token in its metadata (docs/guides/security.md).
"""

import sys
import uuid

import grpc
from tandem.v1 import controller_pb2 as pb
from tandem.v1 import controller_pb2_grpc


def main(address):
    api = controller_pb2_grpc.TandemServiceStub(grpc.insecure_channel(address))
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
    main(sys.argv[1])
