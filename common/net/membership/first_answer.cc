#include "common/net/membership/first_answer.h"

#include <utility>

#include <absl/time/clock.h>
#include <fmt/format.h>

#include "common/base/log.h"
#include "common/base/status.h"
#include "common/net/channel.h"

namespace tandem {
namespace {

constexpr absl::Duration kFirstAnswerPause = absl::Milliseconds(200);
// Each attempt at what another process holds is a line in the controller's log.
constexpr absl::Duration kHeldPause = absl::Seconds(1);
// A port that accepts and closes this many connections in a row, which takes three seconds, does
// not belong to a controller that is starting. Attempts are counted instead of time, because a
// process may be suspended between two attempts.
constexpr int kHandshakeAttempts = 15;

// The port is open, but the process that listens there closes every connection.
absl::Status NoHandshake(const FirstAnswerOptions& options, const absl::Status& status) {
  return FailedPrecondition(
      "{} accepts connections, but no connection {} succeeds: {}; give --tls-cert, --tls-key and "
      "--tls-ca where the controller has cluster.tls and only there, with a certificate of its "
      "authority; or correct --controller",
      options.controller,
      options.security.enabled()
          ? fmt::format("over TLS with the certificate {}", options.security.cert)
          : "without TLS",
      std::string(status.message()));
}

// What the call is repeated for after it ended with `status`.
std::string Awaited(const FirstAnswerOptions& options, const absl::Status& status) {
  if (absl::IsAlreadyExists(status)) return options.what_is_held;
  return AnsweredByWorker(status) ? "the controller to take this process in" : "the controller";
}

absl::Status TooLate(const FirstAnswerOptions& options, const absl::Status& status) {
  const std::string why(status.message()), within = absl::FormatDuration(options.timeout);
  // The controller is there, and has not been able to call this process.
  if (AnsweredByWorker(status)) {
    return MakeStatus(absl::StatusCode::kUnavailable,
                      "the controller at {} did not take this process in within {}: {}",
                      options.controller, within, why);
  }
  return MakeStatus(absl::StatusCode::kUnavailable,
                    "no controller at {} within {}: {}; start tandem-controller, or correct "
                    "--controller",
                    options.controller, within, why);
}

}  // namespace

bool IsUnreachable(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

absl::Status AwaitFirstAnswer(const FirstAnswerOptions& options,
                              const std::function<absl::Status()>& call) {
  const Instant deadline = options.clock->Now() + options.timeout;
  int cut_off = 0;
  std::string told;
  bool refused = false;
  while (true) {
    absl::Status status = call();
    if (status.ok()) return status;
    const bool stale_token = absl::IsUnauthenticated(status) && !std::exchange(refused, true);
    const bool held = absl::IsAlreadyExists(status);  // perhaps by one that is about to end
    if (held && options.clock->Now() + kFirstAnswerPause >= deadline) return status;
    if (!IsUnreachable(status) && !stale_token && !held) return status;
    const bool is_cut_off = absl::IsUnavailable(status) && !AnsweredByWorker(status) &&
                            AcceptsConnections(options.controller);
    cut_off = is_cut_off ? cut_off + 1 : 0;
    if (cut_off == kHandshakeAttempts) return NoHandshake(options, status);
    if (options.clock->Now() + kFirstAnswerPause >= deadline) return TooLate(options, status);
    std::string awaited = Awaited(options, status);
    if (awaited != told) {
      LogInfo("Waiting for {} at {}: {}", awaited, options.controller,
              std::string(status.message()));
      told = std::move(awaited);
    }
    absl::SleepFor(held ? kHeldPause : kFirstAnswerPause);
  }
}

}  // namespace tandem
