#include <catch2/catch.hpp>

#include "common/base/philox.h"
#include "common/weights/manifest.h"
#include "rollout_worker/weights/update_transaction.h"

namespace tandem {
namespace {

ManifestTensor Tensor(const std::string& name, std::vector<int64_t> shape) {
  return {name, DType::kBFloat16, std::move(shape)};
}

// Every row once, entries aligned, inside the slot and not overlapping.
void RequireSound(const Manifest& manifest, const std::vector<Bucket>& buckets, int64_t slot) {
  std::vector<RowCoverage> coverage(manifest.size());
  for (const Bucket& bucket : buckets) {
    REQUIRE(!bucket.entries.empty());
    int64_t end = 0;
    for (const BucketEntry& entry : bucket.entries) {
      REQUIRE(entry.offset % kEntryAlignment == 0);
      REQUIRE(entry.offset >= end);
      end = entry.offset + entry.rows * manifest[entry.tensor].row_bytes();
      REQUIRE(coverage[entry.tensor].Add(entry.row, entry.rows));
    }
    REQUIRE(end == bucket.bytes);
    REQUIRE(end <= slot);
  }
  for (size_t t = 0; t < manifest.size(); ++t) {
    REQUIRE(coverage[t].covered() == (manifest[t].bytes() == 0 ? 0 : manifest[t].rows()));
  }
}

}  // namespace

TEST_CASE("W2: tensors of all sizes are cut into sound buckets") {
  const Manifest manifest = {Tensor("one", {1}),        Tensor("exact", {8, 256}),
                             Tensor("odd", {3, 7}),     Tensor("huge", {1000, 33}),
                             Tensor("empty", {0, 5}),   Tensor("row", {1, 2048}),
                             Tensor("vector", {10000}), Tensor("no columns", {4, 0})};
  for (const int64_t slot : {4096, 4352, 8192, 1 << 20}) {
    const auto buckets = PlanBuckets(manifest, slot);
    REQUIRE(buckets.ok());
    RequireSound(manifest, *buckets, slot);
  }
  REQUIRE(PlanBuckets(manifest, 1 << 20)->size() == 1);
}

TEST_CASE("W2: a tensor of exactly one slot fills one bucket") {
  const Manifest manifest = {Tensor("a", {8, 256}), Tensor("b", {8, 256})};
  const auto buckets = PlanBuckets(manifest, 4096);
  REQUIRE(buckets->size() == 2);
  REQUIRE((*buckets)[0].bytes == 4096);
  REQUIRE((*buckets)[1].entries.size() == 1);
}

TEST_CASE("W2: what is empty has no entry, and a manifest of nothing else no bucket") {
  const Manifest manifest = {Tensor("no rows", {0, 5}), Tensor("one", {1}),
                             Tensor("no columns", {4, 0}), Tensor("other", {1, 1})};
  const auto buckets = PlanBuckets(manifest, 512);
  REQUIRE(buckets->size() == 1);
  const std::vector<BucketEntry>& entries = (*buckets)[0].entries;
  REQUIRE(entries.size() == 2);
  REQUIRE((entries[0].tensor == 1 && entries[1].tensor == 3));
  REQUIRE((entries[0].offset == 0 && entries[1].offset == kEntryAlignment));
  REQUIRE((*buckets)[0].bytes == kEntryAlignment + 2);
  REQUIRE(PlanBuckets({manifest[0], manifest[2]}, 512)->empty());
  REQUIRE(PlanBuckets({}, 512)->empty());
}

TEST_CASE("a tensor that does not fit is cut between panels of 16 rows") {
  const Manifest manifest = {Tensor("small", {5, 256}), Tensor("large", {100, 256})};
  const auto buckets = PlanBuckets(manifest, 24 * 512);
  RequireSound(manifest, *buckets, 24 * 512);
  for (const Bucket& bucket : *buckets) {
    for (const BucketEntry& entry : bucket.entries) REQUIRE(entry.row % 16 == 0);
  }
  // Slots of less than a panel hold what fits.
  const auto narrow = PlanBuckets(manifest, 7 * 512);
  RequireSound(manifest, *narrow, 7 * 512);
  REQUIRE(narrow->size() == 16);
}

TEST_CASE("a row longer than a slot is refused with what to do") {
  const auto status = PlanBuckets({Tensor("wide", {2, 3 << 20})}, 4 << 20).status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::string(status.message()).find("wide") != std::string::npos);
  REQUIRE(std::string(status.message()).find("weight_sync.bucket_mb to at least 6") !=
          std::string::npos);
}

TEST_CASE("random manifests give sound plans") {
  for (uint64_t round = 0; round < 200; ++round) {
    const auto random = [&](uint64_t i, int64_t below) {
      return static_cast<int64_t>(RandomUniform(9, round, i) * below);
    };
    Manifest manifest;
    for (int t = 0; t < 8; ++t) {
      manifest.push_back(
          Tensor("t" + std::to_string(t), {1 + random(2 * t, 400), 1 + random(2 * t + 1, 200)}));
    }
    const int64_t slot = 512 + 256 * random(99, 30);
    const auto buckets = PlanBuckets(manifest, slot);
    REQUIRE(buckets.ok());
    RequireSound(manifest, *buckets, slot);
  }
}

TEST_CASE("row coverage refuses rows that came before, in any order") {
  RowCoverage coverage;
  REQUIRE(coverage.Add(10, 10));
  REQUIRE(coverage.Add(0, 5));
  REQUIRE(coverage.Add(20, 5));
  REQUIRE(coverage.Add(5, 5));
  REQUIRE(coverage.covered() == 25);
  for (const int64_t row : {0, 4, 9, 10, 19, 24}) REQUIRE(!coverage.Add(row, 1));
  REQUIRE(!coverage.Add(24, 10));
  REQUIRE(coverage.Add(30, 10));
  REQUIRE(!coverage.Add(26, 5));
  REQUIRE(coverage.Add(25, 5));
  REQUIRE(coverage.covered() == 40);
}

}  // namespace tandem
