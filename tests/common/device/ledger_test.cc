#include "common/device/ledger.h"

#include <thread>
#include <vector>

#include <catch2/catch.hpp>

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
  REQUIRE(BytesIn(snapshot, Location::kDevice) == 90);
  REQUIRE(LocationName(snapshot.entries[2].location) == "host");
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

TEST_CASE("a snapshot reports the process as the system sees it") {
  Ledger ledger;
  const LedgerSnapshot snapshot = ledger.Snapshot();
  REQUIRE(snapshot.process_bytes > (1 << 20));
  REQUIRE(snapshot.process_peak_bytes >= snapshot.process_bytes);
}

}  // namespace tandem
