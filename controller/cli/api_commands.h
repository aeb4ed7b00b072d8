// Finds the controller of a command, and runs the commands that call it or, where they show a run
// and no controller answers for it, read its directory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

#include "common/net/channel.h"
#include "controller/cli/reading_commands.h"
#include "controller/view/run_view.h"
#include "tandem/v1/controller.grpc.pb.h"

namespace tandem {

// `address` if given; else the socket in `run_dir`, or the port that its controller published, if
// given; else the same of the run under `runs_root` (runs_root/PROJECT/EXPERIMENT or
// runs_root/RUN). NotFound: the message says where it searched and how to name a controller.
absl::StatusOr<std::string> FindController(const std::string& address,
                                           const std::string& run_dir,
                                           const std::string& runs_root);

// The file of the token that calls to `address` need: that of `run_dir` if given, else that of the
// run under `runs_root` that published this port. "": none is needed or found; the controller then
// says where it is.
std::string FindTokenFile(const std::string& address,
                          const std::string& run_dir,
                          const std::string& runs_root);

// Adds the files that a run in `run_dir` (empty: none was named) has left, and that can be read
// without a controller, to the message of an Unavailable `status`. FindController does so if it
// finds no socket.
absl::Status WithWhatIsLeft(absl::Status status, const std::string& run_dir);

struct GenerateOptions {
  std::string prompt;
  bool raw = false;
  int64_t n = 1;
  double temperature = 1.0;
  int64_t max_tokens = 0;  // 0: the run's data.max_response_length
  int64_t seed = 0;
};

// The commands that drive a running controller, and its view of the run, over one connection. Each
// prints its result to `out`, as a table or as one line of JSON. Errors name the address and, if no
// controller answers, the remedy.
class ApiCommands final : public RunView {
 public:
  static absl::StatusOr<ApiCommands> Connect(const std::string& address,
                                             const RpcSecurity& security,
                                             bool json,
                                             std::ostream* out);

  absl::StatusOr<v1::GetStatusResponse> GetStatus() override;
  absl::StatusOr<v1::ListStepsResponse> ListSteps(const v1::ListStepsRequest& request) override;
  absl::StatusOr<v1::ListSamplesResponse> ListSamples(
      const v1::ListSamplesRequest& request) override;
  // Trains `steps` more steps (0: all that are left) and, with `wait`, shows them as they finish.
  absl::Status Run(int64_t steps, bool wait);
  absl::Status Step(bool wait);
  absl::Status Pause();
  absl::Status Resume();
  absl::Status Stop();
  absl::Status Generate(const GenerateOptions& options);
  absl::Status Evaluate(int64_t n, double temperature, int64_t max_prompts);
  // DataLoss: the weights differ.
  absl::Status Check(const std::string& hf_checkpoint);

 private:
  ApiCommands() = default;
  template <typename Request, typename Response>
  using Method = grpc::Status (v1::TandemService::Stub::*)(grpc::ClientContext*,
                                                           const Request&,
                                                           Response*);
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(Method<Request, Response> method,
                                const Request& request,
                                absl::Duration timeout);
  absl::Status Follow(v1::Operation operation, bool wait);

  std::string address_;
  std::unique_ptr<v1::TandemService::Stub> stub_;
  bool json_ = false;
  std::ostream* out_ = nullptr;
};

// Where a command looks for a run, and how it prints what it finds.
struct RunPlace {
  std::string address, run_dir, runs_root = "runs";
  RpcSecurity security;
  bool json = false;
};

// Connects to the controller at `address` with the token of the run, unless another is named.
absl::StatusOr<ApiCommands> ConnectTo(const std::string& address,
                                      const RunPlace& place,
                                      std::ostream& out);

struct ShowAttempt {
  std::string address;  // that was called; empty: none was
  bool found = false;   // a controller's address or a run's files were found
};

// Runs `action` with the view of the run. Where `place` names a run directory and no address, its
// files are read if no controller is found, if calling it fails in any way (a port that a killed
// run has published may be another program's by now), or if it is the controller of another run.
absl::Status ShowRun(const RunPlace& place,
                     const std::function<absl::Status(ReadingCommands&)>& action,
                     std::ostream& out,
                     ShowAttempt& attempt);

}  // namespace tandem
