#include "controller/store/post_mortem/event_log.h"

#include <thread>

#include <absl/synchronization/notification.h>
#include <catch2/catch.hpp>

#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/patience.h"

namespace tandem {
namespace {

// Its disk hangs in the first write of events, and refuses that write in the end.
class HangingStore final : public testing::MemoryRunStore {
 public:
  absl::Status RecordEvents(const std::vector<EventRecord>& records) override {
    if (hung_.HasBeenNotified()) return MemoryRunStore::RecordEvents(records);
    hung_.Notify();
    released_.WaitForNotificationWithTimeout(testing::kPatience);
    return absl::UnavailableError("the disk hung");
  }
  bool WaitUntilHung() { return hung_.WaitForNotificationWithTimeout(testing::kPatience); }
  void Release() { released_.Notify(); }

 private:
  absl::Notification hung_, released_;
};

std::vector<std::string> TextsOf(const std::vector<EventRecord>& events) {
  std::vector<std::string> texts;
  for (const EventRecord& event : events) texts.push_back(event.text);
  return texts;
}

TEST_CASE("The newest events are known while a disk hangs, and are written in order later",
          "[store]") {
  HangingStore store;
  testing::FakeClock clock;
  EventLog events(store, nullptr, clock);
  events.StartWriting();
  std::thread writer([&events] { events.OnMessage("first"); });
  const bool hung = store.WaitUntilHung();
  // Answers although the writer is still in the store, which holds nothing yet.
  const std::vector<std::string> newest = TextsOf(events.Newest());
  const bool written = !store.events.empty();
  store.Release();
  writer.join();
  REQUIRE(hung);
  REQUIRE(newest == std::vector<std::string>{"first"});
  REQUIRE_FALSE(written);
  events.OnMessage("second");
  REQUIRE(TextsOf(store.events) == std::vector<std::string>{"first", "second"});
}

}  // namespace
}  // namespace tandem
