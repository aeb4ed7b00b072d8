#include "controller/cli/api_commands.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grpcpp/channel.h>
#include <unistd.h>

#include "common/base/local_address.h"
#include "common/base/status.h"
#include "common/net/channel.h"
#include "common/net/grpc_status.h"
#include "common/process/files/controller_address.h"
#include "common/process/files/run_token.h"
#include "common/process/local_socket.h"
#include "common/text/unicode/utf8.h"
#include "controller/cli/print_tables.h"
#include "controller/view/run_catalog.h"
#include "controller/view/run_dir_view.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSocketName = "controller.sock";

// The address at which a controller of `run_dir` listens; "" if none does. A process that was
// killed leaves a socket or an address at which no process listens.
std::string LiveAddress(const fs::path& run_dir) {
  const std::string socket = fs::absolute(run_dir / kSocketName).string();
  if (ConnectLocal(socket).ok()) return "unix:" + socket;
  const auto published = ReadPublishedAddress(run_dir.string());
  return published && AcceptsConnections(*published) ? *published : "";
}

std::string PortOf(const std::string& address) { return address.substr(address.rfind(':') + 1); }

// The end of a message that lists a run's files; empty if there are none.
std::string WhatARunLeft(const std::string& run_dir) {
  std::vector<std::string> left;
  for (const auto& [name, what] :
       {std::pair{"report.html", "the report"}, std::pair{"run.db", "steps and samples, SQLite"},
        std::pair{"metrics.jsonl", "metrics by step"}}) {
    std::error_code error;
    const fs::path path = fs::path(run_dir) / name;
    if (fs::exists(path, error)) left.push_back(fmt::format("{} ({})", path.string(), what));
  }
  if (left.empty()) return "";
  return fmt::format("; what a run has left there: {}", fmt::join(left, ", "));
}

}  // namespace

absl::Status WithWhatIsLeft(absl::Status status, const std::string& run_dir) {
  if (!absl::IsUnavailable(status) || run_dir.empty()) return status;
  return absl::Status(status.code(), std::string(status.message()) + WhatARunLeft(run_dir));
}

absl::StatusOr<std::string> FindController(const std::string& address,
                                           const std::string& run_dir,
                                           const std::string& runs_root) {
  if (!address.empty()) return address;
  std::error_code error;
  if (!run_dir.empty()) {
    // A controller that was killed leaves its socket, and the next one may listen on a port.
    if (const std::string live = LiveAddress(run_dir); !live.empty()) return live;
    const fs::path socket = fs::absolute(run_dir) / kSocketName;
    if (fs::exists(socket, error)) return "unix:" + socket.string();
    if (const auto published = ReadPublishedAddress(run_dir)) return *published;
    return MakeStatus(absl::StatusCode::kNotFound,
                      "no controller is running in {}: {} does not exist{}", run_dir,
                      socket.string(), WhatARunLeft(run_dir));
  }
  std::string live;
  std::vector<std::string> names;
  for (const fs::path& candidate : RunDirectories(runs_root)) {
    const std::string found = LiveAddress(candidate);
    if (found.empty()) continue;
    live = found;
    names.push_back((candidate / (found.starts_with("unix:") ? kSocketName : found)).string());
  }
  if (names.size() == 1) return live;
  if (!names.empty()) {
    std::sort(names.begin(), names.end());
    return InvalidArgument("{} controllers run under {}/: name one with --run-dir: {}",
                           names.size(), runs_root, fmt::join(names, ", "));
  }
  return MakeStatus(
      absl::StatusCode::kNotFound,
      "no running controller found under {}/: start one with ./deploy/launch.sh "
      "CONFIG, or name it with --address or --run-dir; tandemctl runs lists the runs "
      "that ended, and status, steps, samples, memory and report read one's directory",
      runs_root);
}

std::string FindTokenFile(const std::string& address,
                          const std::string& run_dir,
                          const std::string& runs_root) {
  if (!NeedsRunToken(address, {})) return "";
  if (!run_dir.empty()) return RunTokenPath(run_dir);
  for (const fs::path& candidate : RunDirectories(runs_root)) {
    const auto published = ReadPublishedAddress(candidate.string());
    if (published && IsLocalAddress(*published) && PortOf(*published) == PortOf(address)) {
      return RunTokenPath(candidate.string());
    }
  }
  return "";
}

namespace {

constexpr absl::Duration kShort = absl::Seconds(10);
// For calls that wait for a moment between two steps, however long a step takes: the user ends them
// by Ctrl-C, and the controller then drops them.
constexpr absl::Duration kUntilAnswered = absl::InfiniteDuration();
constexpr double kWaitSlice = 2.0;

// Unique per command, so that the controller executes a call only once if gRPC retries it.
std::string RequestId() {
  return fmt::format("ctl-{}-{}", getpid(), absl::ToUnixMicros(absl::Now()));
}

}  // namespace

absl::StatusOr<ApiCommands> ApiCommands::Connect(const std::string& address,
                                                 const RpcSecurity& security,
                                                 bool json,
                                                 std::ostream* out) {
  TANDEM_ASSIGN_OR_RETURN(const auto channel, MakeChannel(address, security));
  ApiCommands commands;
  commands.address_ = address;
  commands.stub_ = v1::TandemService::NewStub(channel);
  commands.json_ = json;
  commands.out_ = out;
  return commands;
}

template <typename Request, typename Response>
absl::StatusOr<Response> ApiCommands::Call(Method<Request, Response> method,
                                           const Request& request,
                                           absl::Duration timeout) {
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  Response response;
  const absl::Status status = FromGrpcStatus((stub_.get()->*method)(&context, request, &response));
  if (absl::IsUnavailable(status)) {
    return Annotate(status, fmt::format("no controller answers at {}: is the run still going? "
                                        "(name another one with --address or --run-dir)",
                                        address_));
  }
  if (!status.ok()) return Annotate(status, address_);
  return response;
}

absl::StatusOr<v1::GetStatusResponse> ApiCommands::GetStatus() {
  return Call(&v1::TandemService::Stub::GetStatus, v1::GetStatusRequest(), kShort);
}

absl::StatusOr<v1::ListStepsResponse> ApiCommands::ListSteps(const v1::ListStepsRequest& request) {
  return Call(&v1::TandemService::Stub::ListSteps, request, kShort);
}

absl::StatusOr<v1::ListSamplesResponse> ApiCommands::ListSamples(
    const v1::ListSamplesRequest& request) {
  return Call(&v1::TandemService::Stub::ListSamples, request, kShort);
}

absl::Status ApiCommands::Run(int64_t steps, bool wait) {
  v1::RunRequest request;
  request.set_request_id(RequestId());
  request.set_steps(steps);
  TANDEM_ASSIGN_OR_RETURN(auto operation, Call(&v1::TandemService::Stub::Run, request, kShort));
  return Follow(std::move(operation), wait);
}

absl::Status ApiCommands::Step(bool wait) {
  v1::StepRequest request;
  request.set_request_id(RequestId());
  TANDEM_ASSIGN_OR_RETURN(auto operation, Call(&v1::TandemService::Stub::Step, request, kShort));
  return Follow(std::move(operation), wait);
}

absl::Status ApiCommands::Follow(v1::Operation operation, bool wait) {
  int64_t shown = operation.first_step() - 1;
  while (wait && !operation.done()) {
    v1::WaitOperationRequest request;
    request.set_id(operation.id());
    request.set_timeout_seconds(kWaitSlice);
    TANDEM_ASSIGN_OR_RETURN(operation,
                            Call(&v1::TandemService::Stub::WaitOperation, request, kShort));
    if (!json_ && operation.last_step() > shown) {
      ReadingCommands reading(*this, json_, *out_);
      TANDEM_RETURN_IF_ERROR(
          reading.Steps({.first_step = shown + 1, .last_step = operation.last_step()}));
      shown = operation.last_step();
    }
  }
  PrintAnswer(*out_, json_, operation,
              operation.done() ? fmt::format("operation {} done, last step {}\n", operation.id(),
                                             operation.last_step())
                               : fmt::format("operation {} started at step {}\n", operation.id(),
                                             operation.first_step()));
  if (operation.error().empty()) return absl::OkStatus();
  return absl::AbortedError(operation.error());
}

absl::Status ApiCommands::Pause() {
  v1::PauseRequest request;
  request.set_request_id(RequestId());
  TANDEM_ASSIGN_OR_RETURN(const auto reply, Call(&v1::TandemService::Stub::Pause, request, kShort));
  TANDEM_ASSIGN_OR_RETURN(
      const auto status, Call(&v1::TandemService::Stub::GetStatus, v1::GetStatusRequest(), kShort));
  PrintAnswer(*out_, json_, reply, PauseText(status));
  return absl::OkStatus();
}

absl::Status ApiCommands::Resume() {
  v1::ResumeRequest request;
  request.set_request_id(RequestId());
  TANDEM_ASSIGN_OR_RETURN(const auto reply,
                          Call(&v1::TandemService::Stub::Resume, request, kShort));
  PrintAnswer(*out_, json_, reply, fmt::format("going on after step {}\n", reply.step()));
  return absl::OkStatus();
}

absl::Status ApiCommands::Stop() {
  v1::StopRequest request;
  request.set_request_id(RequestId());
  TANDEM_ASSIGN_OR_RETURN(const auto reply, Call(&v1::TandemService::Stub::Stop, request, kShort));
  PrintAnswer(
      *out_, json_, reply,
      fmt::format("stopping after the current step; {} steps are finished\n", reply.step()));
  return absl::OkStatus();
}

absl::Status ApiCommands::Generate(const GenerateOptions& options) {
  if (!IsValidUtf8(options.prompt)) return InvalidArgument("the prompt is not UTF-8");
  v1::UserGenerateRequest request;
  request.set_prompt(options.prompt);
  request.set_raw(options.raw);
  request.set_n(options.n);
  v1::SamplingParams* params = request.mutable_params();
  params->set_temperature(static_cast<float>(options.temperature));
  params->set_top_p(1.0F);
  params->set_top_k(-1);
  params->set_max_tokens(options.max_tokens);
  params->set_seed(static_cast<uint64_t>(options.seed));
  TANDEM_ASSIGN_OR_RETURN(const auto reply,
                          Call(&v1::TandemService::Stub::Generate, request, kUntilAnswered));
  std::string text;
  for (const std::string& response : reply.texts()) text += response + "\n";
  PrintAnswer(*out_, json_, reply, text);
  return absl::OkStatus();
}

absl::Status ApiCommands::Evaluate(int64_t n, double temperature, int64_t max_prompts) {
  v1::EvaluateRequest request;
  request.set_n(n);
  if (n != 0) request.set_temperature(static_cast<float>(temperature));
  request.set_max_prompts(max_prompts);
  TANDEM_ASSIGN_OR_RETURN(const auto reply,
                          Call(&v1::TandemService::Stub::Evaluate, request, kUntilAnswered));
  PrintAnswer(*out_, json_, reply, EvaluationTable(reply));
  return absl::OkStatus();
}

absl::Status ApiCommands::Check(const std::string& hf_checkpoint) {
  v1::CheckRequest request;
  request.set_hf_checkpoint(hf_checkpoint);
  TANDEM_ASSIGN_OR_RETURN(const auto reply,
                          Call(&v1::TandemService::Stub::CheckWeights, request, kUntilAnswered));
  PrintAnswer(*out_, json_, reply, CheckTable(reply));
  return reply.ok() ? absl::OkStatus() : absl::DataLossError("trainer and rollout weights differ");
}

namespace {

bool IsSilence(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// Whether the controller that gave `answer` runs in `run_dir`. It may have another path for the
// directory than this process, as after `cd` or in a container, but the run's id is the same.
bool IsOfDirectory(const v1::GetStatusResponse& answer, const std::string& run_dir) {
  std::error_code error;
  if (fs::equivalent(answer.run_dir(), run_dir, error)) return true;
  const auto files = RunDirView::Open(run_dir);
  if (!files.ok()) return false;
  const auto own = (*files)->GetStatus();
  return own.ok() && !own->run_id().empty() && own->run_id() == answer.run_id();
}

// FailedPrecondition: another run's controller answers. Otherwise errors of the call.
absl::Status CheckController(ApiCommands& api,
                             const std::string& address,
                             const std::string& run_dir) {
  TANDEM_ASSIGN_OR_RETURN(const v1::GetStatusResponse answer, api.GetStatus());
  // A socket is a file of the directory; a port may have gone to another run.
  const bool is_socket = address.starts_with("unix:");
  if (is_socket || IsOfDirectory(answer, run_dir)) return absl::OkStatus();
  return MakeStatus(absl::StatusCode::kFailedPrecondition,
                    "{} is the controller of the run {} in {}", address, answer.run_id(),
                    answer.run_dir());
}

// Whether the answer is the controller's; else `status` says why the files are read instead.
bool AskController(const std::string& address,
                   const RunPlace& place,
                   const std::function<absl::Status(ReadingCommands&)>& action,
                   std::ostream& out,
                   absl::Status& status) {
  // Whoever names a controller or a token wants to hear what becomes of them.
  const bool may_read_files =
      !place.run_dir.empty() && place.address.empty() && place.security.token_file.empty();
  auto api = ConnectTo(address, place, out);
  status = api.status();
  if (!api.ok()) return !may_read_files;
  if (may_read_files) {
    status = CheckController(*api, address, place.run_dir);
    if (!status.ok()) return false;
  }
  ReadingCommands commands(*api, place.json, out);
  status = action(commands);
  return !IsSilence(status) || !may_read_files;
}

}  // namespace

absl::StatusOr<ApiCommands> ConnectTo(const std::string& address,
                                      const RunPlace& place,
                                      std::ostream& out) {
  RpcSecurity security = place.security;
  if (security.token_file.empty()) {
    security.token_file = FindTokenFile(address, place.run_dir, place.runs_root);
  } else {
    // Fails early if the file that the user named holds no token.
    TANDEM_RETURN_IF_ERROR(ReadRunToken(security.token_file).status());
  }
  return ApiCommands::Connect(address, security, place.json, &out);
}

absl::Status ShowRun(const RunPlace& place,
                     const std::function<absl::Status(ReadingCommands&)>& action,
                     std::ostream& out,
                     ShowAttempt& attempt) {
  const auto address = FindController(place.address, place.run_dir, place.runs_root);
  absl::Status asked = address.status();
  if (address.ok()) {
    attempt = {.address = *address, .found = true};
    if (AskController(*address, place, action, out, asked)) return asked;
  } else if (place.run_dir.empty()) {
    return asked;
  }
  const auto view = RunDirView::Open(place.run_dir);
  if (!view.ok()) {
    if (!address.ok()) return view.status();
    return absl::Status(view.status().code(), fmt::format("{}; asking its controller failed: {}",
                                                          std::string(view.status().message()),
                                                          std::string(asked.message())));
  }
  attempt.found = true;
  ReadingCommands commands(**view, place.json, out);
  return action(commands);
}

}  // namespace tandem
