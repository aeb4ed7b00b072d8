// A saved batch is read back unchanged, and another file is refused by name.
#include "controller/store/batch_file.h"

#include <cstring>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <xxhash.h>

#include "common/formats/files.h"
#include "common/types/xxh3.h"
#include "controller/store/saved_batch.h"
#include "tests/controller/store/some_batch.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Says;

void RequireSavedSample(const SavedSample& got, const SavedSample& want) {
  REQUIRE(got.sample_id == want.sample_id);
  REQUIRE(got.group == want.group);
  REQUIRE(got.index == want.index);
  REQUIRE(got.tokens == want.tokens);
  REQUIRE(got.prompt_tokens == want.prompt_tokens);
  REQUIRE(got.versions == want.versions);
  for (const SavedArray& array : kSavedArrays) {
    INFO(array.name);
    REQUIRE(got.*array.values == want.*array.values);
  }
  REQUIRE(got.segments.size() == want.segments.size());
  REQUIRE(got.segments[0].begin == want.segments[0].begin);
  REQUIRE(got.segments[0].length == want.segments[0].length);
  REQUIRE(got.segments[0].trained);
  REQUIRE(got.segments[0].weight_version == 7);
  REQUIRE(got.finish_reason == want.finish_reason);
  REQUIRE(got.temperature == want.temperature);
  REQUIRE(got.off_support == want.off_support);
  REQUIRE(got.reward == want.reward);
  REQUIRE(got.trained_tokens == want.trained_tokens);
  REQUIRE(got.mini_batch == want.mini_batch);
  REQUIRE(got.rank == want.rank);
  REQUIRE(got.score == want.score);
  REQUIRE(got.advantage == want.advantage);
  REQUIRE(got.reward_terms == want.reward_terms);
}

struct BatchFileFixture {
  BatchFileFixture() { testing::WriteBatch(path, testing::SomeInfo(), testing::SomeSamples()); }

  std::string Bytes() const { return ReadWholeFile(path).value(); }
  // What opening the file says once it has these bytes.
  absl::Status Opened(const std::string& bytes) const {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return BatchReader::Open(path).status();
  }

  testing::TempDir dir;
  const std::string path = dir.path() / "step_12.batch";
};

// Makes header and preamble agree again after the bytes behind the preamble were changed.
void Seal(std::string& bytes) {
  BatchPreamble preamble;
  std::memcpy(&preamble, bytes.data(), sizeof(preamble));
  preamble.file_bytes = bytes.size();
  preamble.header_bytes = bytes.size() - preamble.header_offset;
  const Xxh3Hash digest =
      HashXxh3(bytes.data() + sizeof(preamble), bytes.size() - sizeof(preamble));
  preamble.digest_low = digest.low;
  preamble.digest_high = digest.high;
  preamble.check = XXH3_64bits(&preamble, offsetof(BatchPreamble, check));
  std::memcpy(bytes.data(), &preamble, sizeof(preamble));
}

// The status of a file whose header has `now` for the first `before`.
absl::Status WithHeader(const BatchFileFixture& f,
                        const std::string& before,
                        const std::string& now) {
  std::string bytes = f.Bytes();
  const size_t at = bytes.find(before, sizeof(BatchPreamble));
  REQUIRE(at != std::string::npos);
  bytes.replace(at, before.size(), now);
  Seal(bytes);
  return f.Opened(bytes);
}

}  // namespace

TEST_CASE("A saved batch comes back as it was", "[batch_file]") {
  const BatchFileFixture f;
  const auto batch = BatchReader::Open(f.path);
  INFO(batch.status().ToString());
  REQUIRE(batch.ok());
  const std::vector<SavedSample> samples = testing::SomeSamples();
  REQUIRE((*batch)->size() == samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    RequireSavedSample((*batch)->Read(i), samples[i]);
    REQUIRE((*batch)->Meta(i).sample_id == samples[i].sample_id);
    REQUIRE((*batch)->Meta(i).tokens.empty());
  }
  const SavedBatchInfo& info = (*batch)->info();
  const SavedBatchInfo want = testing::SomeInfo();
  REQUIRE(info.step == 12);
  REQUIRE(info.sampling_version == 7);
  REQUIRE(info.version == 8);
  REQUIRE(info.failure == want.failure);
  REQUIRE(info.epoch == 1);
  REQUIRE(info.mini_batch == 1);
  REQUIRE(info.ranks == 2);
  REQUIRE(info.model_path == want.model_path);
  REQUIRE(info.checkpoint == want.checkpoint);
  REQUIRE(info.config_yaml == want.config_yaml);
  REQUIRE(info.mini_batches.size() == 2);
  REQUIRE(info.mini_batches[1].trained_tokens == 3);
  REQUIRE(info.metrics.at("actor/lr") == 1e-6);
  REQUIRE(std::isnan(info.metrics.at("actor/grad_norm")));
  REQUIRE((*batch)->file_bytes() == static_cast<int64_t>(f.Bytes().size()));
}

TEST_CASE("Values that are not finite are kept to the bit", "[batch_file]") {
  const testing::TempDir dir;
  SavedSample sample = testing::SomeSample(2, 0, 3);
  sample.advantages = {NAN, INFINITY, -0.0f};
  sample.reward = -INFINITY;
  testing::WriteBatch(dir.path() / "b", {}, {sample});
  const auto batch = BatchReader::Open(dir.path() / "b");
  REQUIRE(batch.ok());
  const SavedSample back = (*batch)->Read(0);
  REQUIRE(std::memcmp(back.advantages.data(), sample.advantages.data(), 12) == 0);
  REQUIRE(back.reward == -INFINITY);
}

TEST_CASE("Text that is not an UTF-8 does not keep a batch from being saved", "[batch_file]") {
  const testing::TempDir dir;
  testing::WriteBatch(dir.path() / "b", {.failure = "\xff\xfe"}, {});
  const auto batch = BatchReader::Open(dir.path() / "b");
  REQUIRE(batch.ok());
  REQUIRE((*batch)->info().failure == "\xef\xbf\xbd\xef\xbf\xbd");
  REQUIRE((*batch)->size() == 0);
}

TEST_CASE("Nothing is there before a batch is committed", "[batch_file]") {
  const testing::TempDir dir;
  const std::string path = dir.path() / "b";
  {
    const auto writer = BatchWriter::Create(path);
    REQUIRE(writer.ok());
    REQUIRE((*writer)->Add(testing::SomeSample(2, 0, 3)).ok());
  }
  REQUIRE(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("Arrays that do not fit are not written", "[batch_file]") {
  const testing::TempDir dir;
  const auto writer = BatchWriter::Create(dir.path() / "b");
  REQUIRE(writer.ok());
  SavedSample sample = testing::SomeSample(2, 0, 3);
  sample.mask.pop_back();
  REQUIRE(Says((*writer)->Add(sample), "sample 0x2: 2 mask for 3 response tokens"));
  sample = testing::SomeSample(2, 0, 3);
  sample.versions.pop_back();
  REQUIRE(absl::IsInvalidArgument((*writer)->Add(sample)));
}

TEST_CASE("Every cut of a saved batch is told", "[batch_file]") {
  const BatchFileFixture f;
  const std::string bytes = f.Bytes();
  for (size_t size = 8; size < bytes.size(); size += size < 100 ? 1 : 37) {
    INFO(size);
    const absl::Status status = f.Opened(bytes.substr(0, size));
    REQUIRE(absl::IsDataLoss(status));
    REQUIRE(Says(status, f.path + " was cut short: it has " + std::to_string(size) + " bytes"));
    REQUIRE(Says(status, "trainer.save_batch_freq"));
  }
  REQUIRE(absl::IsDataLoss(f.Opened(bytes + "x")));
}

TEST_CASE("Every changed byte of a saved batch is told", "[batch_file]") {
  const BatchFileFixture f;
  const std::string bytes = f.Bytes();
  for (size_t at = 8; at < bytes.size(); at += at < 64 ? 1 : 53) {
    INFO(at);
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x10);
    const absl::Status status = f.Opened(changed);
    REQUIRE_FALSE(status.ok());
    REQUIRE(Says(status, f.path));
  }
  std::string changed = bytes;
  changed[100] = static_cast<char>(changed[100] + 1);
  REQUIRE(Says(f.Opened(changed), "the digest of its bytes is not the one that was written"));
}

TEST_CASE("What is not a saved batch is refused with what to give instead", "[batch_file]") {
  const BatchFileFixture f;
  std::string bytes = f.Bytes();
  bytes[0] = 'X';
  REQUIRE(absl::IsInvalidArgument(f.Opened(bytes)));
  REQUIRE(
      Says(f.Opened(bytes), "is not a saved batch: it does not begin as one; give a file that"));
  REQUIRE(absl::IsInvalidArgument(f.Opened("")));
  REQUIRE(Says(f.Opened(""), "it is empty"));
  REQUIRE(absl::IsInvalidArgument(f.Opened("TND")));
  const absl::Status folder = BatchReader::Open(f.dir.path()).status();
  REQUIRE(absl::IsInvalidArgument(folder));
  REQUIRE(Says(folder, "RUN_DIR/batches/step_N.batch"));
  REQUIRE(absl::IsNotFound(BatchReader::Open(f.path + "x").status()));
  const std::string store = f.dir.path() / "step_000001.samples";
  std::ofstream(store) << "tokens";
  REQUIRE(Says(BatchReader::Open(store).status(),
               "has an index from the moment that its step is recorded"));
}

TEST_CASE("A newer version is refused before anything else of it is read", "[batch_file]") {
  const BatchFileFixture f;
  std::string bytes = f.Bytes();
  bytes[8] = 2;
  const absl::Status status = f.Opened(bytes);
  REQUIRE(absl::IsUnimplemented(status));
  REQUIRE(Says(status, "has version 2 of the format, and this build reads up to 1"));
}

TEST_CASE("A header that lies is told, its digest being right", "[batch_file]") {
  REQUIRE(absl::IsDataLoss(
      WithHeader(BatchFileFixture(), "\"prompt_tokens\":3", "\"prompt_tokens\":4")));
  REQUIRE(Says(WithHeader(BatchFileFixture(), "\"prompt_tokens\":3", "\"prompt_tokens\":-3"),
               "sample 0x2: its arrays do not fit"));
  REQUIRE(Says(WithHeader(BatchFileFixture(), "\"tokens\":[", "\"tokens\":[9"), "do not fit"));
  REQUIRE(Says(
      WithHeader(BatchFileFixture(), "\"mask\":[", "\"mask\":[18446744073709551615,4],\"x\":["),
      "do not fit"));
  REQUIRE(Says(WithHeader(BatchFileFixture(), "\"versions\":[", "\"versions\":[0,4],\"x\":["),
               "do not fit"));
  REQUIRE(Says(WithHeader(BatchFileFixture(), "\"id\":\"0x2\"", "\"id\":\"two\""),
               "header is damaged"));
  REQUIRE(Says(WithHeader(BatchFileFixture(), "\"step\":12", "\"step\":[]"), "header is damaged"));
  REQUIRE(Says(WithHeader(BatchFileFixture(), "{\"batch\"", "[\"batch\""), "header is damaged"));
}

TEST_CASE("Keys and arrays of a later build are left out", "[batch_file]") {
  REQUIRE(WithHeader(BatchFileFixture(), "\"step\":12", "\"step\":12,\"later\":[1]").ok());
  REQUIRE(WithHeader(BatchFileFixture(), "\"mask\":[", "\"later\":[64,1],\"mask\":[").ok());
}

}  // namespace tandem
