// Groups of ranks that save their state and load it.
#pragma once

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/trainer_worker/trainer_ranks.h"

namespace tandem::testing {

inline absl::StatusOr<int64_t> SaveRank(Rank& rank, const SaveOptions& save) {
  TrainingSession& session = *rank.session;
  return SaveState(save, session.spec(), session.shard(), session.weights().exported(),
                   session.optimizer(), session.communicator(), rank.ledger.get());
}

struct CheckpointFixture {
  TempDir dir;
  TrainerRanksOptions options;
  std::vector<Sample> samples = RandomSamples(6, 3);

  CheckpointFixture() {
    options.model_dir = (dir.path() / "model").string();
    REQUIRE(WriteTinyModel(options.model_dir, NarrowModel()).ok());
  }
  TrainerRanksOptions Offloaded(bool master, bool moments) const {
    TrainerRanksOptions other = options;
    other.offload_master = master;
    other.offload_moments = moments;
    return other;
  }
  std::string Folder(const std::string& name) {
    const std::filesystem::path path = dir.path() / name;
    std::filesystem::create_directories(path);
    return path.string();
  }
  void TrainStep(TrainerRanks& group) {
    TrainOn(group, samples);
    StepOn(group);
  }
  std::string Save(TrainerRanks& group, const std::string& name, int64_t version) {
    const SaveOptions save{
        .directory = Folder(name), .tokenizer_dir = options.model_dir, .version = version};
    group.RunOk([&](Rank& rank, int) { return SaveRank(rank, save).status(); });
    return save.directory;
  }
  void Load(TrainerRanks& group, const std::string& directory, int64_t version) {
    group.RunOk([&](Rank& rank, int) -> absl::Status {
      TrainingSession& session = *rank.session;
      TANDEM_ASSIGN_OR_RETURN(const int64_t got,
                              LoadState(directory, session.shard(), session.optimizer()));
      TANDEM_RETURN_IF_ERROR(session.WeightsChanged());
      return got == version ? absl::OkStatus() : Internal("version {}", got);
    });
  }
};

inline std::string BytesOfFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

// Every tensor file of folder `a`, at any depth, has the bytes of the one in `b`.
inline void RequireSameFiles(const std::string& a, const std::string& b) {
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(a)) {
    const std::filesystem::path name = std::filesystem::relative(entry.path(), a);
    INFO(name);
    if (name.extension() != ".safetensors") continue;
    const bool same = BytesOfFile(entry.path()) == BytesOfFile(std::filesystem::path(b) / name);
    REQUIRE(same);
    ++files;
  }
  REQUIRE(files > 0);
}

// The same state, on any numbers of ranks.
inline void RequireSameState(TrainerRanks& a, TrainerRanks& b) {
  REQUIRE(a[0].session->optimizer().updates() == b[0].session->optimizer().updates());
  REQUIRE(a[0].session->optimizer().schedule_step() == b[0].session->optimizer().schedule_step());
  for (const std::string& name : a.TensorNames()) {
    INFO(name);
    REQUIRE((a.Master(name) == b.Master(name)));
    const auto first = [](ParameterShard& shard) { return shard.exp_avg(); };
    const auto second = [](ParameterShard& shard) { return shard.exp_avg_sq(); };
    REQUIRE((a.Full(name, first) == b.Full(name, first)));
    REQUIRE((a.Full(name, second) == b.Full(name, second)));
  }
  for (int rank = 0; a.size() == b.size() && rank < a.size(); ++rank) {
    const ParameterShard& one = a[rank].session->shard();
    const ParameterShard& other = b[rank].session->shard();
    REQUIRE(std::memcmp(one.compute(), other.compute(), one.elements() * 2) == 0);
  }
}

}  // namespace tandem::testing
