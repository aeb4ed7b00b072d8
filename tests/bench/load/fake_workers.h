// Many workers of a run in one process, without an engine: they register, send heartbeats and serve
// the controller's calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/time/time.h>

#include "common/net/server.h"
#include "common/process/threads.h"

namespace tandem::testing {

// As many trainers as rollouts. Each worker has a connection of its own to the controller; all are
// served at one address, which the controller connects to once for each. Throws std::runtime_error
// where the controller refuses one.
class FakeWorkers {
 public:
  // `folder`: of their socket.
  FakeWorkers(const std::string& controller, const std::string& folder, int pairs);
  ~FakeWorkers();

  // Registers all at once: each as a worker does when it starts, and again when it knows its
  // numerics. Returns when the controller has accepted the last one.
  void Register();
  // One a second from each worker, spread over the second, from now on.
  void StartHeartbeats();

  struct Answers {
    int64_t heartbeats = 0;
    int64_t failed = 0;
    double slowest_seconds = 0;
  };
  // Heartbeats that were answered since the last call.
  Answers TakeAnswers();

 private:
  struct Worker;

  void RegisterAll(bool ready);
  void Beat(Worker& worker);

  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<RpcServer> server_;
  std::atomic<bool> over_ = false;
  std::atomic<int64_t> running_ = 0;  // calls
  std::atomic<int64_t> answered_ = 0, failed_ = 0, slowest_microseconds_ = 0;
  NamedThread heartbeats_;
};

}  // namespace tandem::testing
