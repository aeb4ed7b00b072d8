"""A reward of your own, in any language: here, Python.

    docs/examples/setup.sh
    .deps/examples/bin/python docs/examples/reward_server.py 127.0.0.1:7000 &
    deploy/launch.sh CONFIG --set reward.function=remote --set reward.service_address=127.0.0.1:7000

Score must be a pure function of the request: the controller retries it.
"""

import re
import sys
from concurrent import futures

import grpc
from tandem.v1 import reward_pb2 as pb
from tandem.v1 import reward_pb2_grpc


class Reward(reward_pb2_grpc.RewardServiceServicer):
    def Score(self, request, context):
        reply = pb.ScoreResponse()
        for item in request.items:
            numbers = re.findall(r"-?\d+", item.response)
            right = bool(numbers) and int(numbers[-1]) == int(item.ground_truth)
            reply.scores.add(score=float(right), extras={"numbers": float(len(numbers))})
        return reply


def main(address):
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    reward_pb2_grpc.add_RewardServiceServicer_to_server(Reward(), server)
    server.add_insecure_port(address)
    server.start()
    print(f"reward service on {address}", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1])
