// A model with more embedding rows than the tokenizer has ids, under partial rollout: rows beyond
// the vocabulary are padding that is never sampled, carried or read from a checkpoint.
#include <cstring>
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>
#include <fmt/format.h>

#include "common/types/xxh3.h"
#include "controller/store/batch_file.h"
#include "tests/e2e/recovery.h"

namespace tandem::testing {
namespace {

// Of the tiny model's tokenizer: bytes, merges and special tokens.
constexpr int32_t kIds = 256 + 7 + 3;
// A random model draws one of these seven times in eight, if it may.
constexpr int64_t kRows = 2048;

RigOptions PaddedModel() {
  return {
      .model = {.vocab_size = kRows},
      .config = {{"rollout.stop", "[a, b, c, d, e, f, g, h, i, k, l, m, n, o, p, r, s, t, u, w]"},
                 {"rollout.n", "2"},
                 {"data.max_response_length", "32"},
                 {"rollout.partial.max_tokens_per_round", "6"},
                 {"rollout.partial.groups_per_round", "6"},
                 {"trainer.save_batch_freq", "1"}}};
}

// Whether all tokens of a step's samples are of the vocabulary.
void RequireVocabularyAlone(const ClusterRig& rig, int64_t step) {
  const auto batch =
      BatchReader::Open(fmt::format("{}/batches/step_{}.batch", rig.run_dir(), step));
  INFO(batch.status().ToString());
  REQUIRE(batch.ok());
  REQUIRE((*batch)->size() > 0);
  for (size_t i = 0; i < (*batch)->size(); ++i) {
    for (const int32_t id : (*batch)->Read(i).tokens) {
      const bool known = id >= 0 && id < kIds;
      INFO("step " << step << ", sample " << i << ", id " << id);
      REQUIRE(known);
    }
  }
}

void Write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::string DigestOfBytes(const std::string& bytes) {
  return HashXxh3(bytes.data(), bytes.size()).Hex();
}

// Replaces the first id of a pool in a checkpoint, with all digests right.
void ReplaceFirstId(const std::string& pool, int32_t id) {
  std::string tokens = FileText(pool + "/tokens.bin"), lines = FileText(pool + "/pool.jsonl");
  REQUIRE(tokens.size() >= sizeof(id));
  const std::string before = DigestOfBytes(tokens);
  std::memcpy(tokens.data(), &id, sizeof(id));
  lines.erase(lines.rfind('\n', lines.size() - 2) + 1);
  const size_t at = lines.find(before);
  REQUIRE(at != std::string::npos);
  lines.replace(at, before.size(), DigestOfBytes(tokens));
  lines += fmt::format("{{\"xxh3\":\"{}\"}}\n", DigestOfBytes(lines));
  Write(pool + "/tokens.bin", tokens);
  Write(pool + "/pool.jsonl", lines);
}

}  // namespace

TEST_CASE(
    "a model with more embedding rows than tokenizer ids: no padding row is ever drawn, and a "
    "pool that holds one is refused") {
  ClusterRig rig(PaddedModel());
  rig.SetPairs(1);
  REQUIRE(rig.Launch().Wait() == 0);
  double carried = 0, mixed = 0;
  for (int64_t step = 1; step <= 3; ++step) {
    RequireVocabularyAlone(rig, step);
    const nlohmann::json metrics = rig.Metrics().at(step);
    REQUIRE(metrics.value("training/rollout_log_probs_identical", 1.0) == 1.0);
    carried += metrics.at("partial/carried_samples").get<double>();
    mixed += metrics.at("partial/total_partial_num").get<double>();
  }
  REQUIRE(carried > 0);
  REQUIRE(mixed > 0);

  const std::string pool = rig.run_dir() + "/checkpoints/step_3/partial_pool";
  const std::string tokens = FileText(pool + "/tokens.bin"), lines = FileText(pool + "/pool.jsonl");
  rig.Set("trainer.total_training_steps", "4");
  for (const int32_t id : {kIds, static_cast<int32_t>(kRows) - 1}) {
    ReplaceFirstId(pool, id);
    const int code = rig.Launch({"--grace", "5"}).Wait();
    const std::string said = rig.Log("launcher") + rig.Log("controller");
    INFO(said);
    REQUIRE(code == 65);
    const std::string why =
        fmt::format("holds the token id {}, and the tokenizer has {} ids", id, kIds);
    REQUIRE(said.find(why) != std::string::npos);
    REQUIRE(rig.Metrics().size() == 3);
    Write(pool + "/tokens.bin", tokens);
    Write(pool + "/pool.jsonl", lines);
  }
  // Nothing was lost: as it was, it goes on.
  const int code = rig.Launch().Wait();
  INFO(rig.Log("launcher"));
  REQUIRE(code == 0);
  RequireVocabularyAlone(rig, 4);
}

}  // namespace tandem::testing
