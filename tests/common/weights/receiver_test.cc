#include <algorithm>

#include <catch2/catch.hpp>

#include "common/process/threads.h"
#include "rollout_worker/weights/update_transaction.h"
#include "tests/fakes/memory_weights.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

struct ReceiverFixture {
  WeightLayout layout = WeightLayout::Build(testing::OddSpec(true), DType::kBFloat16);
  Manifest manifest = ManifestOf(layout);
  std::vector<std::byte> storage = std::vector<std::byte>(layout.total_bytes());
  std::vector<std::byte> slot = std::vector<std::byte>(1 << 16, std::byte{7});
  UpdateTransaction receiver{
      CreateCpuStorageOps(&layout, storage.data(), std::make_shared<ThreadPool>(2))};

  absl::Status Apply(const BucketEntry& entry, int64_t version = 1, int64_t number = 10) {
    return receiver.Apply({version, number}, {slot.data(), 1 << 16}, {entry});
  }
};

}  // namespace

TEST_CASE("a manifest that does not fit is refused with what is wrong and changes nothing") {
  ReceiverFixture f;
  REQUIRE(f.receiver.AdoptVersion(3).ok());
  const auto refused = [&](const Manifest& manifest, const std::string& text) {
    const absl::Status status = f.receiver.Begin({4, 10}, manifest);
    INFO(status.ToString());
    REQUIRE(status.code() == kInvalid);
    REQUIRE(Says(status, text));
    REQUIRE(!f.receiver.updating());
    REQUIRE(f.receiver.version() == 3);
  };
  Manifest manifest = f.manifest;
  manifest.erase(manifest.begin() + 2);
  refused(manifest, "1 missing (" + f.manifest[2].name);
  manifest = f.manifest;
  manifest.push_back({"lm_head.weight", DType::kBFloat16, {301, 40}});
  refused(manifest, "1 unexpected (lm_head.weight)");
  manifest = f.manifest;
  manifest.push_back(manifest[0]);
  refused(manifest, "1 doubled");
  manifest = f.manifest;
  manifest[0].shape[0] -= 1;
  refused(manifest, "[301, 40] here and BF16 [300, 40] there");
  manifest = f.manifest;
  manifest[5].dtype = DType::kFloat32;
  refused(manifest, "F32");
  refused({}, fmt::format("{} missing", f.manifest.size()));
  REQUIRE(f.receiver.Begin({-5, 10}, f.manifest).code() == kInvalid);
}

TEST_CASE("P7: one changed bit in any tensor is found and named") {
  ReceiverFixture f;
  for (size_t i = 0; i < f.storage.size(); ++i) f.storage[i] = std::byte(i * 7);
  REQUIRE(f.receiver.AdoptVersion(4).ok());
  REQUIRE(f.receiver.Verify().ok());
  for (const TensorPlace& place : f.layout.places()) {
    if (place.rows() * place.cols() == 0) continue;
    INFO(place.name);
    std::byte* const group = f.storage.data() + f.layout.group_offset(place.layer);
    for (const int64_t row : {int64_t{0}, place.rows() - 1}) {
      std::vector<std::byte> bytes(static_cast<size_t>(place.cols()) *
                                   DTypeBytes(f.layout.dtype()));
      f.layout.ReadRows(group, place, row, 1, bytes.data());
      bytes.back() ^= std::byte{1};
      f.layout.WriteRows(group, place, row, 1, bytes.data());
      const absl::Status status = f.receiver.Verify();
      INFO(status.ToString());
      REQUIRE(status.code() == absl::StatusCode::kDataLoss);
      REQUIRE(Says(status, place.name + " of version 4 changed"));
      bytes.back() ^= std::byte{1};
      f.layout.WriteRows(group, place, row, 1, bytes.data());
      REQUIRE(f.receiver.Verify().ok());
    }
  }
}

TEST_CASE("P7: what a commit accepted is remembered, in whatever order the tensors came") {
  ReceiverFixture f;
  REQUIRE(f.receiver.AdoptVersion(4).ok());
  std::reverse(f.manifest.begin(), f.manifest.end());
  REQUIRE(f.receiver.Begin({5, 10}, f.manifest).ok());
  std::vector<Digest> digests;
  for (size_t t = 0; t < f.manifest.size(); ++t) {
    const ManifestTensor& tensor = f.manifest[t];
    const auto bytes = static_cast<size_t>(tensor.rows() * tensor.row_bytes());
    for (size_t i = 0; i < bytes; ++i) f.slot[i] = std::byte(i * 11 + t);
    if (bytes > 0) {
      REQUIRE(f.Apply({static_cast<int32_t>(t), 0, tensor.rows(), 0}, 5).ok());
    }
    digests.push_back(DigestOf(f.slot.data(), static_cast<int64_t>(bytes)));
  }
  REQUIRE(f.receiver.Commit({5, 10}, digests).ok());
  REQUIRE(f.receiver.Verify().ok());
  f.storage[0] ^= std::byte{1};
  REQUIRE(Says(f.receiver.Verify(), f.layout.places()[0].name + " of version 5"));
}

TEST_CASE("the order of a manifest is free") {
  ReceiverFixture f;
  testing::MemoryWeights weights(f.layout, 3);
  Manifest manifest(f.manifest.rbegin(), f.manifest.rend());
  REQUIRE(f.receiver.Begin({1, 10}, manifest).ok());
  std::vector<Digest> digests;
  for (size_t t = 0; t < manifest.size(); ++t) {
    std::copy_n(weights.tensor(manifest[t].name), manifest[t].bytes(), f.slot.data());
    REQUIRE(f.Apply({static_cast<int32_t>(t), 0, manifest[t].rows(), 0}).ok());
    digests.push_back(DigestOf(weights.tensor(manifest[t].name), manifest[t].bytes()));
  }
  REQUIRE(f.receiver.Commit({1, 10}, digests).ok());
  REQUIRE(f.receiver.version() == 1);
}

TEST_CASE("another version or update than the open one is aborted") {
  ReceiverFixture f;
  REQUIRE(f.Apply({0, 0, 1, 0}).code() == absl::StatusCode::kAborted);
  REQUIRE(f.receiver.Begin({1, 10}, f.manifest).ok());
  REQUIRE(f.Apply({0, 0, 1, 0}, 2, 10).code() == absl::StatusCode::kAborted);
  REQUIRE(f.Apply({0, 0, 1, 0}, 1, 9).code() == absl::StatusCode::kAborted);
  REQUIRE(f.receiver.Commit({2, 10}, {}).code() == absl::StatusCode::kAborted);
  REQUIRE(f.receiver.Commit({1, 9}, {}).code() == absl::StatusCode::kAborted);
  REQUIRE(f.receiver.updating());
  REQUIRE(f.receiver.Begin({2, 11}, f.manifest).code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(f.receiver.open().version == 1);
  REQUIRE(f.receiver.open().update_number == 10);
}

TEST_CASE("entries outside their tensor or slot are refused before a byte is written") {
  ReceiverFixture f;
  REQUIRE(f.receiver.AdoptVersion(0).ok());
  REQUIRE(f.receiver.Begin({1, 10}, f.manifest).ok());
  const int32_t count = static_cast<int32_t>(f.manifest.size());
  const std::vector<BucketEntry> bad = {
      {-1, 0, 1, 0},   {count, 0, 1, 0},   {0, -1, 1, 0},     {0, 301, 1, 0},
      {0, 0, 302, 0},  {0, 0, 0, 0},       {0, 0, -1, 0},     {0, 0, 1, 3},
      {0, 0, 1, -256}, {0, 0, 1, 1 << 16}, {0, 0, 10, 65280}, {0, 300, int64_t{1} << 62, 0}};
  for (const BucketEntry& entry : bad) {
    REQUIRE(f.receiver.Apply({1, 10}, {f.slot.data(), 1 << 16}, {{1, 0, 1, 0}, entry}).code() ==
            kInvalid);
  }
  REQUIRE(!f.receiver.applied());
  REQUIRE(f.receiver.version() == 0);
  REQUIRE(std::all_of(f.storage.begin(), f.storage.end(),
                      [](std::byte b) { return b == std::byte{0}; }));
  f.receiver.Abort();
  REQUIRE(f.receiver.version() == 0);
}

TEST_CASE("rows that come twice are refused") {
  ReceiverFixture f;
  REQUIRE(f.receiver.Begin({1, 10}, f.manifest).ok());
  REQUIRE(f.Apply({0, 0, 10, 0}).ok());
  REQUIRE(Says(f.Apply({0, 9, 2, 0}), "arrived twice"));
}

TEST_CASE("a bucket that is refused for rows that come twice marks none of its rows") {
  ReceiverFixture f;
  REQUIRE(f.receiver.Begin({1, 10}, f.manifest).ok());
  const BucketEntry first{0, 0, 10, 0}, other{1, 0, 1, 0};
  const FilledSlot slot{f.slot.data(), 1 << 16};
  REQUIRE(Says(f.receiver.Apply({1, 10}, slot, {other, first, {0, 9, 2, 0}}), "arrived twice"));
  REQUIRE(!f.receiver.applied());
  REQUIRE(f.receiver.Apply({1, 10}, slot, {other, first}).ok());
  REQUIRE(Says(f.receiver.Apply({1, 10}, slot, {other}), "arrived twice"));
}

TEST_CASE("a version is invisible from the first applied byte to the commit") {
  ReceiverFixture f;
  REQUIRE(f.receiver.AdoptVersion(8).ok());
  REQUIRE(f.receiver.Begin({9, 10}, f.manifest).ok());
  REQUIRE(f.receiver.version() == 8);
  REQUIRE(f.Apply({0, 0, 1, 0}, 9).ok());
  REQUIRE(f.receiver.version() == kNoVersion);
  f.receiver.Abort();
  REQUIRE(f.receiver.version() == kNoVersion);
  f.receiver.Abort();
  REQUIRE(!f.receiver.updating());
}

TEST_CASE("a commit of a short update names the tensor and ends the update") {
  ReceiverFixture f;
  REQUIRE(f.receiver.AdoptVersion(8).ok());
  REQUIRE(f.receiver.Begin({9, 10}, f.manifest).ok());
  REQUIRE(f.Apply({0, 0, 300, 0}, 9).ok());
  const absl::Status status = f.receiver.Commit({9, 10}, std::vector<Digest>(f.manifest.size()));
  REQUIRE(status.code() == kInvalid);
  REQUIRE(Says(status, f.manifest[0].name + " is incomplete: 300 of 301 rows"));
  REQUIRE(!f.receiver.updating());
  REQUIRE(f.receiver.version() == kNoVersion);
  REQUIRE(f.receiver.Begin({9, 11}, f.manifest).ok());
  REQUIRE(f.receiver.Commit({9, 11}, {}).code() == kInvalid);
  REQUIRE(!f.receiver.updating());
}

}  // namespace tandem
