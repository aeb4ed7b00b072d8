// Waits for the end of one call of a client.
#pragma once

#include <future>
#include <memory>
#include <utility>

#include "controller/workers/done.h"

namespace tandem::testing {

// Example: AnswerOf<SleepReports>([&](auto done) { client->Sleep(SleepMode::kLevel2, done); })
template <typename Result, typename Call>
absl::StatusOr<Result> AnswerOf(const Call& call) {
  const auto answer = std::make_shared<std::promise<absl::StatusOr<Result>>>();
  call(Done<Result>([answer](absl::StatusOr<Result> end) { answer->set_value(std::move(end)); }));
  return answer->get_future().get();
}

// Of a call without a result.
template <typename Call>
absl::Status StatusOf(const Call& call) {
  const auto answer = std::make_shared<std::promise<absl::Status>>();
  call(StatusDone([answer](absl::Status end) { answer->set_value(std::move(end)); }));
  return answer->get_future().get();
}

}  // namespace tandem::testing
