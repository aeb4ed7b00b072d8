#include "common/device/ledger.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <catch2/catch.hpp>

#include "common/device/device.h"
#include "tests/support/bytes_in.h"

namespace tandem {

TEST_CASE("a ledger keeps current and peak bytes by tag and location") {
  Ledger ledger;
  ledger.Add("weights", Location::kDevice, 100);
  ledger.Add("weights", Location::kHost, 7);
  ledger.Add("kv_cache", Location::kDevice, 50);
  ledger.Add("weights", Location::kDevice, -60);
  const LedgerSnapshot snapshot = ledger.Snapshot();
  REQUIRE(snapshot.entries.size() == 3);
  REQUIRE(snapshot.entries[0].tag == "kv_cache");
  REQUIRE(snapshot.entries[1].current_bytes == 40);
  REQUIRE(snapshot.entries[1].peak_bytes == 100);
  REQUIRE(BytesOf(snapshot, "weights") == 47);
  REQUIRE(testing::BytesIn(snapshot, Location::kDevice) == 90);
  REQUIRE(snapshot.entries[2].location == Location::kHost);
}

TEST_CASE("resetting peaks starts them from what is held") {
  Ledger ledger;
  ledger.Add("gather", Location::kDevice, 100);
  ledger.Add("gather", Location::kDevice, -90);
  ledger.ResetPeaks();
  REQUIRE(ledger.Snapshot().entries[0].peak_bytes == 10);
  ledger.Add("gather", Location::kDevice, 5);
  REQUIRE(ledger.Snapshot().entries[0].peak_bytes == 15);
}

TEST_CASE("the peak of all tags is that of one moment, not a sum of peaks") {
  Ledger ledger;
  ledger.Add("kv_cache", Location::kDevice, 100);
  ledger.Add("kv_cache", Location::kDevice, -100);
  ledger.Add("gather", Location::kDevice, 80);
  ledger.Add("bucket", Location::kHost, 10);
  ledger.Add("optimizer", Location::kFile, 1000);
  LedgerSnapshot snapshot = ledger.Snapshot();
  REQUIRE(snapshot.device_bytes == 80);
  REQUIRE(snapshot.device_peak_bytes == 100);
  REQUIRE(snapshot.memory_bytes == 90);
  REQUIRE(snapshot.memory_peak_bytes == 100);
  ledger.ResetPeaks();
  snapshot = ledger.Snapshot();
  REQUIRE(snapshot.device_peak_bytes == 80);
  REQUIRE(snapshot.memory_peak_bytes == 90);
  REQUIRE(ledger.memory_bytes() == 90);
}

TEST_CASE("a region counts in full, and as resident what has pages") {
  Ledger ledger;
  int64_t resident = 30;
  ledger.AddRegion(&resident, "activations", Location::kDevice, 100, [&] { return resident; });
  ledger.Add("workspace", Location::kDevice, 7);
  LedgerSnapshot snapshot = ledger.Snapshot();
  REQUIRE(snapshot.device_bytes == 107);
  REQUIRE(snapshot.resident_bytes == 37);
  REQUIRE(snapshot.unaccounted_bytes() ==
          snapshot.process_bytes - snapshot.baseline_bytes - snapshot.resident_bytes);
  resident = 100;
  REQUIRE(ledger.Snapshot().resident_bytes == 107);
  ledger.RemoveRegion(&resident);
  ledger.RemoveRegion(&resident);
  REQUIRE(ledger.Snapshot().device_bytes == 7);
  REQUIRE(ledger.Snapshot().resident_bytes == 7);
}

TEST_CASE("M1: books of regions close: baseline and resident bytes are the process's memory") {
  constexpr int64_t kMiB = 1 << 20;
  // What the test's own frames, and pages that the allocator keeps, may take.
  constexpr int64_t kSlack = 4 * kMiB;
  Ledger ledger;
  const auto region = HostDevice()->Reserve("weights", 64 * kMiB, &ledger).value();
  const auto host = HostDevice()->ReserveHost("weights", 32 * kMiB, &ledger).value();
  const auto closes = [&](int64_t resident) {
    const LedgerSnapshot snapshot = ledger.Snapshot();
    REQUIRE(snapshot.resident_bytes == resident);
    REQUIRE(std::abs(snapshot.unaccounted_bytes()) < kSlack);
  };
  closes(0);
  REQUIRE(region->Map().ok());
  closes(0);  // pages come at first touch
  std::memset(region->data(), 1, 64 * kMiB);
  closes(64 * kMiB);
  REQUIRE(host->Map().ok());
  std::memset(host->data(), 1, 32 * kMiB);
  closes(96 * kMiB);
  REQUIRE(testing::BytesIn(ledger.Snapshot(), Location::kHost) == 32 * kMiB);
  REQUIRE(region->Release().ok());
  closes(32 * kMiB);
  // Memory that nobody counts shows as the difference.
  const auto hidden = HostDevice()->Reserve("hidden", 16 * kMiB, nullptr).value();
  REQUIRE(hidden->Map().ok());
  std::memset(hidden->data(), 1, 16 * kMiB);
  REQUIRE(ledger.Snapshot().unaccounted_bytes() > 12 * kMiB);
}

TEST_CASE("a ledger adds up over threads") {
  Ledger ledger;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&ledger] {
      for (int i = 0; i < 1000; ++i) ledger.Add("bucket", Location::kHost, 3);
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(BytesOf(ledger.Snapshot(), "bucket") == 12000);
}

TEST_CASE("others count while a snapshot reads the pages of a region") {
  Ledger ledger;
  int64_t total = 0;
  ledger.AddRegion(&total, "activations", Location::kDevice, 100, [&] {
    ledger.Add("bucket", Location::kHost, 5);
    total = ledger.memory_bytes();
    return 60;
  });
  const LedgerSnapshot snapshot = ledger.Snapshot();
  REQUIRE(total == 105);
  REQUIRE(snapshot.memory_bytes == 100);  // of the moment at which it began
  REQUIRE(snapshot.resident_bytes == 60);
  ledger.RemoveRegion(&total);
  REQUIRE(ledger.memory_bytes() == 5);
}

TEST_CASE("no region is read after it was removed") {
  Ledger ledger;
  std::atomic<bool> done{false};
  std::atomic<int> reads{0}, late{0};
  std::thread reader([&] {
    while (!done) ledger.Snapshot();
  });
  const auto churn = [&] {
    while (reads < 200) {
      auto alive = std::make_unique<std::atomic<bool>>(true);
      const auto* const key = alive.get();
      ledger.AddRegion(key, "gather", Location::kDevice, 10, [&, key] {
        reads += 1;
        late += *key ? 0 : 1;
        return 10;
      });
      ledger.RemoveRegion(key);
      *alive = false;
    }
  };
  std::thread other(churn);
  churn();
  other.join();
  done = true;
  reader.join();
  REQUIRE(late == 0);
  REQUIRE(ledger.memory_bytes() == 0);
  REQUIRE(ledger.Snapshot().resident_bytes == 0);
}

TEST_CASE("a snapshot says what the device's driver says at that moment") {
  Ledger ledger;
  REQUIRE(ledger.Snapshot().driver_total_bytes == 0);
  int64_t free = 70;
  ledger.SetDriverReader([&] { return DriverMemory{.total = 100, .free = free}; });
  REQUIRE(ledger.Snapshot().driver_total_bytes == 100);
  REQUIRE(ledger.Snapshot().driver_free_bytes == 70);
  free = 20;
  REQUIRE(ledger.Snapshot().driver_free_bytes == 20);
}

TEST_CASE("a snapshot reports the process as the system sees it") {
  Ledger ledger;
  const LedgerSnapshot snapshot = ledger.Snapshot();
  REQUIRE(snapshot.process_bytes > (1 << 20));
  REQUIRE(snapshot.process_peak_bytes >= snapshot.process_bytes);
}

}  // namespace tandem
