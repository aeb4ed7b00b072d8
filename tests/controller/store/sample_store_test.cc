#include "controller/store/sample_store.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <catch2/catch.hpp>

#include "tests/common/formats/file_size_limit.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

Sample MakeStoredSample(uint64_t id, int64_t responses) {
  Sample sample;
  sample.sample_id = id;
  sample.group = static_cast<int64_t>(id / 10);
  sample.tokens = {1, 2, 3};
  sample.prompt_tokens = 3;
  for (int64_t i = 0; i < responses; ++i) {
    sample.tokens.push_back(static_cast<int32_t>(id) + static_cast<int32_t>(i));
    sample.log_probs.push_back(-static_cast<float>(i) - 0.5f);
    sample.versions.push_back(7);
  }
  sample.segments = {{.begin = 3, .length = responses, .trained = true, .weight_version = 7}};
  sample.finish_reason = FinishReason::kLength;
  sample.temperature = 0.5f;
  return sample;
}

struct SampleStoreFixture {
  testing::TempDir dir;
  std::unique_ptr<SampleStore> store = *SampleStore::Open(dir.path() / "samples", 0);
};

}  // namespace

TEST_CASE("SampleStore takes samples without log-probs", "[samples]") {
  SampleStoreFixture f;
  REQUIRE(f.store->BeginStep(1).ok());
  Sample sample = MakeStoredSample(1, 3);
  sample.log_probs.clear();
  REQUIRE(f.store->Put(sample, 7).ok());
  const Sample back = f.store->Read(1).value();
  REQUIRE(back.tokens == sample.tokens);
  REQUIRE(back.log_probs.empty());
  REQUIRE(back.versions == sample.versions);
  sample = MakeStoredSample(2, 3);
  sample.log_probs.pop_back();
  REQUIRE(absl::IsInvalidArgument(f.store->Put(sample, 7)));
}

TEST_CASE("SampleStore keeps the files of the newest steps", "[samples]") {
  testing::TempDir dir;
  const auto files = [&] {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
      names.insert(entry.path().filename().string());
    }
    return names;
  };
  {
    const auto all = *SampleStore::Open(dir.path(), 0);
    for (int64_t step = 1; step <= 4; ++step) REQUIRE(all->BeginStep(step).ok());
    REQUIRE(files().size() == 4);
  }
  std::ofstream(dir.path() / "step_1.txt") << "not ours";
  const auto store = *SampleStore::Open(dir.path(), 2);
  REQUIRE(store->BeginStep(5).ok());
  REQUIRE(files() ==
          std::set<std::string>{"step_000004.samples", "step_000005.samples", "step_1.txt"});
  // A run that goes back makes the later ones again.
  REQUIRE(store->BeginStep(4).ok());
  REQUIRE(files() == std::set<std::string>{"step_000004.samples", "step_1.txt"});
}

TEST_CASE("SampleStore gives back what it was given, with outcome and advantage", "[samples]") {
  SampleStoreFixture f;
  REQUIRE(f.store->BeginStep(1).ok());
  REQUIRE(f.store->Put(MakeStoredSample(20, 2), 7).ok());
  REQUIRE(f.store->Put(MakeStoredSample(10, 3), 7).ok());
  f.store->SetOutcome(20, {.score = 2.0, .reward = 1.0, .advantage = -0.25});
  const auto sample = f.store->Read(20);
  REQUIRE(sample.ok());
  REQUIRE(sample->tokens == MakeStoredSample(20, 2).tokens);
  REQUIRE(sample->log_probs == MakeStoredSample(20, 2).log_probs);
  REQUIRE(sample->versions == std::vector<int64_t>{7, 7});
  REQUIRE(sample->segments.size() == 1);
  REQUIRE(sample->temperature == 0.5f);
  REQUIRE(sample->reward == 1.0);
  REQUIRE(sample->advantages == std::vector<float>{-0.25f, -0.25f});
  REQUIRE(sample->finish_reason == FinishReason::kLength);
  REQUIRE(f.store->Metas().front().sample_id == 10);
  REQUIRE(f.store->Metas().back().weight_version == 7);
}

TEST_CASE("SampleStore refuses a token that other weights sampled", "[samples]") {
  SampleStoreFixture f;
  REQUIRE(f.store->BeginStep(1).ok());
  Sample mixed = MakeStoredSample(1, 3);
  mixed.versions[2] = 6;
  const absl::Status status = f.store->Put(mixed, 7);
  REQUIRE(absl::IsDataLoss(status));
  REQUIRE(std::string(status.message()).find("version 6 sampled response token 2") !=
          std::string::npos);
  REQUIRE(absl::IsNotFound(f.store->Read(1).status()));
}

TEST_CASE("SampleStore takes tokens of older weights where it is told to, and no others",
          "[samples][partial]") {
  SampleStoreFixture f;
  REQUIRE(f.store->BeginStep(1).ok());
  const auto put = [&](uint64_t id, const std::vector<int64_t>& versions) {
    Sample sample = MakeStoredSample(id, static_cast<int64_t>(versions.size()));
    sample.versions = versions;
    return f.store->Put(sample, 7, TokenVersions::kUpTo);
  };
  const auto refused = [&](const std::vector<int64_t>& versions, const std::string& part) {
    const absl::Status status = put(9, versions);
    INFO(status.ToString());
    REQUIRE(absl::IsDataLoss(status));
    REQUIRE(std::string(status.message()).find(part) != std::string::npos);
    REQUIRE(absl::IsNotFound(f.store->Read(9).status()));
  };
  REQUIRE(put(1, {4, 4, 6, 7}).ok());
  REQUIRE(put(2, {5, 5}).ok());  // whole before the step began
  REQUIRE(put(3, {7, 7, 7}).ok());
  REQUIRE(put(4, {}).ok());
  refused({6, 7, 8}, "weights of version 8 sampled response token 2, version 7 or an older one");
  refused({6, 6, 5, 7}, "version 5 sampled response token 2, after a token of version 6");
  refused({7, 6}, "version 6 sampled response token 1, after a token of version 7");

  REQUIRE(f.store->Read(1)->versions == std::vector<int64_t>{4, 4, 6, 7});
  const std::vector<SampleMeta> metas = f.store->Metas();
  REQUIRE(metas[0].weight_version == 4);
  REQUIRE(metas[0].newest_version == 7);
  REQUIRE(metas[0].response_segments.size() == 3);
  REQUIRE(metas[0].response_segments[1].begin == 2);
  REQUIRE(metas[0].response_segments[1].length == 1);
  REQUIRE(metas[0].response_segments[1].weight_version == 6);
  REQUIRE(metas[1].newest_version == 5);
  REQUIRE(metas[2].response_segments.size() == 1);
  REQUIRE(metas[3].response_segments.empty());
}

TEST_CASE("SampleStore takes every id once, and only whole samples", "[samples]") {
  SampleStoreFixture f;
  REQUIRE_FALSE(f.store->Put(MakeStoredSample(1, 1), 7).ok());  // no step yet
  REQUIRE(f.store->BeginStep(1).ok());
  REQUIRE(f.store->Put(MakeStoredSample(1, 1), 7).ok());
  REQUIRE(absl::IsAlreadyExists(f.store->Put(MakeStoredSample(1, 1), 7)));
  Sample broken = MakeStoredSample(2, 2);
  broken.log_probs.pop_back();
  REQUIRE(absl::IsInvalidArgument(f.store->Put(broken, 7)));
}

TEST_CASE("SampleStore streams by rank and mini-batch in order of id", "[samples]") {
  SampleStoreFixture f;
  REQUIRE(f.store->BeginStep(4).ok());
  for (const uint64_t id : {5u, 3u, 1u, 4u}) REQUIRE(f.store->Put(MakeStoredSample(id, 1), 7).ok());
  f.store->Assign(5, 0, 1);
  f.store->Assign(3, 1, 0);
  f.store->Assign(1, 0, 0);
  f.store->Assign(4, 0, 0);
  REQUIRE(*f.store->Assigned(4, 0, 0) == std::vector<uint64_t>{1, 4});
  REQUIRE(*f.store->Assigned(4, -1, 0) == std::vector<uint64_t>{1, 3, 4});
  REQUIRE(f.store->Assigned(4, 1, 1)->empty());
  REQUIRE(absl::IsNotFound(f.store->Assigned(3, 0, 0).status()));
}

TEST_CASE("SampleStore takes log-probs back, again and again", "[samples]") {
  SampleStoreFixture f;
  REQUIRE(f.store->BeginStep(1).ok());
  REQUIRE(f.store->Put(MakeStoredSample(1, 2), 7).ok());
  const auto kind = TokenArray::kReference;
  REQUIRE(f.store->ReadArray(kind, 1)->empty());
  REQUIRE(f.store->PutArray(1, kind, 1, {-3, -4}).ok());
  REQUIRE(f.store->PutArray(1, kind, 1, {-1, -2}).ok());
  REQUIRE(f.store->Read(1)->ref_log_probs == std::vector<float>{-1, -2});
  REQUIRE(f.store->Read(1)->old_log_probs.empty());
  REQUIRE(absl::IsNotFound(f.store->PutArray(2, kind, 1, {-1, -2})));
  REQUIRE(absl::IsInvalidArgument(f.store->PutArray(1, kind, 1, {-1})));
}

TEST_CASE("SampleStore puts nothing behind the index of a step", "[samples]") {
  SampleStoreFixture f;
  REQUIRE(f.store->BeginStep(1).ok());
  REQUIRE(f.store->Put(MakeStoredSample(1, 2), 7).ok());
  REQUIRE(f.store->Flush("index").ok());
  const auto path = f.dir.path() / "samples" / "step_000001.samples";
  const auto bytes = std::filesystem::file_size(path);
  const absl::Status late = f.store->PutArray(1, TokenArray::kTraining, 1, {-1.0f, -2.0f});
  REQUIRE(absl::IsFailedPrecondition(late));
  REQUIRE(f.store->Flush().ok());
  REQUIRE(std::filesystem::file_size(path) == bytes);
  REQUIRE(f.store->BeginStep(1).ok());
  REQUIRE(f.store->Put(MakeStoredSample(1, 2), 7).ok());
  REQUIRE(f.store->PutArray(1, TokenArray::kTraining, 1, {-1.0f, -2.0f}).ok());
}

TEST_CASE("SampleStore gives a sample its masks, weights and advantages token by token",
          "[samples]") {
  SampleStoreFixture f;
  REQUIRE(f.store->BeginStep(1).ok());
  REQUIRE(f.store->Put(MakeStoredSample(1, 3), 7).ok());
  f.store->SetOutcome(1, {.advantage = 2});
  REQUIRE(f.store->Read(1)->advantages == std::vector<float>{2, 2, 2});
  REQUIRE(f.store->Metas()[0].trained_tokens == 3);
  REQUIRE(f.store->PutArray(1, TokenArray::kAdvantages, 1, {3, 2, 1}).ok());
  REQUIRE(f.store->PutArray(1, TokenArray::kIsWeights, 1, {0.5, 1, 2}).ok());
  REQUIRE(f.store->PutArray(1, TokenArray::kMask, 1, {1, 0, 1}).ok());
  REQUIRE(f.store->PutArray(1, TokenArray::kSumPiSquared, 1, {0.1f, 0.2f, 0.3f}).ok());
  const Sample sample = *f.store->Read(1);
  REQUIRE(sample.advantages == std::vector<float>{3, 2, 1});
  REQUIRE(sample.is_weights == std::vector<float>{0.5, 1, 2});
  REQUIRE(sample.mask == std::vector<float>{1, 0, 1});
  REQUIRE(sample.old_log_probs.empty());
  REQUIRE(f.store->Metas()[0].trained_tokens == 2);
  REQUIRE(*f.store->ReadArray(TokenArray::kSumPiSquared, 1) ==
          std::vector<float>{0.1f, 0.2f, 0.3f});
}

TEST_CASE("SampleStore counts neither a tool's output nor what the mask takes as trained",
          "[samples]") {
  SampleStoreFixture f;
  REQUIRE(f.store->BeginStep(1).ok());
  Sample sample = MakeStoredSample(1, 5);
  sample.segments = {{0, 3, false, 0}, {3, 2, true, 7}, {5, 2, false, 0}, {7, 1, true, 7}};
  REQUIRE(f.store->Put(sample, 7).ok());
  REQUIRE(f.store->Metas()[0].trained_tokens == 3);
  REQUIRE(f.store->PutArray(1, TokenArray::kMask, 1, {0, 1, 1, 1, 1}).ok());
  REQUIRE(f.store->Metas()[0].trained_tokens == 2);
  REQUIRE(f.store->PutArray(1, TokenArray::kMask, 1, {0, 0, 0, 0, 0}).ok());
  REQUIRE(f.store->Metas()[0].trained_tokens == 0);
}

TEST_CASE("SampleStore begins a replayed step anew", "[samples]") {
  SampleStoreFixture f;
  REQUIRE(f.store->BeginStep(1).ok());
  REQUIRE(f.store->Put(MakeStoredSample(1, 2), 7).ok());
  REQUIRE(f.store->BeginStep(1).ok());
  REQUIRE(f.store->Metas().empty());
  REQUIRE(f.store->Put(MakeStoredSample(1, 2), 7).ok());
}

TEST_CASE("SampleStore forgets the samples that it drops", "[samples]") {
  SampleStoreFixture f;
  REQUIRE(f.store->BeginStep(1).ok());
  for (const uint64_t id : {10, 11, 20, 21}) REQUIRE(f.store->Put(MakeStoredSample(id, 2), 7).ok());
  f.store->Drop({11, 20, 99});
  REQUIRE(f.store->Metas().size() == 2);
  REQUIRE(absl::IsNotFound(f.store->Read(11).status()));
  REQUIRE(absl::IsNotFound(f.store->Read(20).status()));
  REQUIRE(absl::IsNotFound(f.store->PutArray(1, TokenArray::kReference, 11, {0, 0})));
  REQUIRE(*f.store->Assigned(1, -1, 0) == std::vector<uint64_t>{10, 21});
  // The others are where they were, and more may come.
  REQUIRE(f.store->Read(21)->tokens == MakeStoredSample(21, 2).tokens);
  REQUIRE(f.store->Put(MakeStoredSample(30, 2), 7).ok());
  REQUIRE(f.store->Read(30)->tokens == MakeStoredSample(30, 2).tokens);
}

TEST_CASE("SampleStore names the key to change where the disk is full, and goes on after it",
          "[samples]") {
  SampleStoreFixture f;
  REQUIRE(f.store->BeginStep(1).ok());
  {
    const testing::FileSizeLimit full(20);
    const absl::Status put = f.store->Put(MakeStoredSample(1, 3), 7);
    REQUIRE(absl::IsResourceExhausted(put));
    REQUIRE(testing::Says(put, "step_000001.samples: writing failed"));
    REQUIRE(testing::Says(put, "cluster.run_dir"));
  }
  REQUIRE(f.store->Put(MakeStoredSample(1, 3), 7).ok());
  REQUIRE(f.store->Read(1)->tokens == MakeStoredSample(1, 3).tokens);
}

}  // namespace tandem
