// Tells when a channel's calls begin and end.
#pragma once

#include <string>

#include <absl/status/status.h>

namespace tandem {

// Thread-safe; called by the threads of the calls, so it must return quickly.
class CallObserver {
 public:
  virtual ~CallObserver() = default;

  // `method`: its name alone, "ForwardBackward".
  virtual void OnCall(const std::string& method) = 0;
  virtual void OnAnswer(const std::string& method, absl::StatusCode code) = 0;
};

}  // namespace tandem
