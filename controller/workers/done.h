// How calls to workers end.
#pragma once

#include <functional>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace tandem {

// Called exactly once with what a call ended with: by a thread that serves many calls, or before
// the call returns. It must not wait for anything.
template <typename Result>
using Done = std::function<void(absl::StatusOr<Result>)>;
using StatusDone = std::function<void(absl::Status)>;

// Gives a result to `keep` before `done` hears of the end.
template <typename Result, typename Keep>
Done<Result> Keeping(Keep keep, StatusDone done) {
  return [keep = std::move(keep), done = std::move(done)](absl::StatusOr<Result> result) {
    const absl::Status status = result.status();
    if (status.ok()) keep(*std::move(result));
    done(status);
  };
}

}  // namespace tandem
