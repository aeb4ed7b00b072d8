#include "common/formats/training_state.h"

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "common/memory/memory_formulas.h"
#include "common/model_spec/row_ranges.h"
#include "tests/common/formats/test_checkpoint.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using Catch::Matchers::Contains;
using StatePart = TrainingStateReader::Part;
namespace fs = std::filesystem;

// What element `index` of the whole tensor number `number` is.
float Value(size_t number, int64_t index, StatePart part) {
  return static_cast<float>(number * 1000) + static_cast<float>(index) +
         0.25f * static_cast<float>(part);
}

int64_t RowElements(const TensorSpec& tensor) {
  return NumElements(tensor.shape) / tensor.shape[0];
}

struct RankState {
  TrainingStateHeader header;
  std::vector<TrainingShard> shards;
  std::vector<std::vector<float>> values;  // the shards point here
};

RankState MakeRank(const ModelSpec& spec, int64_t rank, int64_t world, bool moments = true) {
  RankState state;
  state.header = {rank, world, 5, 4, moments, {{"random", std::to_string(rank)}}};
  const std::vector<TensorSpec> tensors = HfTensors(spec);
  for (size_t number = 0; number < tensors.size(); ++number) {
    const TensorSpec& tensor = tensors[number];
    const RowRange range = ShardRows(tensor.shape[0], rank, world);
    TrainingShard shard{tensor.name, tensor.shape, range.begin, range.rows()};
    const float* parts[3] = {};
    for (const StatePart part : {StatePart::kMaster, StatePart::kExpAvg, StatePart::kExpAvgSq}) {
      std::vector<float> values;
      for (int64_t i = range.begin * RowElements(tensor); i < range.end * RowElements(tensor);
           ++i) {
        values.push_back(Value(number, i, part));
      }
      state.values.push_back(std::move(values));
      parts[static_cast<size_t>(part)] = state.values.back().data();
    }
    shard.master = parts[0];
    shard.exp_avg = moments ? parts[1] : nullptr;
    shard.exp_avg_sq = moments ? parts[2] : nullptr;
    state.shards.push_back(shard);
  }
  return state;
}

void WriteAll(const std::string& dir, const ModelSpec& spec, int64_t world, bool moments = true) {
  for (int64_t rank = 0; rank < world; ++rank) {
    const RankState state = MakeRank(spec, rank, world, moments);
    REQUIRE(WriteTrainingState(dir, state.header, state.shards).ok());
  }
}

TEST_CASE("A writer asks for what it reads, range by range, for the digests and for the file",
          "[tensor_file][training_state]") {
  const testing::TempDir dir;
  const std::vector<float> values(3 * kRowRangeBytes / 4 + 10, 1.5f);
  const auto count = static_cast<int64_t>(values.size());
  std::vector<std::pair<int64_t, int64_t>> read;
  REQUIRE(
      WriteTrainingState(dir.path(), {},
                         {{.name = "w", .shape = {count}, .rows = count, .master = values.data()}},
                         [&](const float* first, int64_t some) {
                           read.push_back({first - values.data(), some});
                           return first;
                         })
          .ok());
  const int64_t range = kRowRangeBytes / 4;
  const std::vector<std::pair<int64_t, int64_t>> pass = {
      {0, range}, {range, range}, {2 * range, range}, {3 * range, 10}};
  std::vector<std::pair<int64_t, int64_t>> twice = pass;
  twice.insert(twice.end(), pass.begin(), pass.end());
  REQUIRE(read == twice);
}

std::string TrainingStateOpenError(const std::string& dir,
                                   const ModelSpec& spec,
                                   absl::StatusCode code) {
  const absl::Status status = TrainingStateReader::Open(dir, HfTensors(spec)).status();
  REQUIRE(status.code() == code);
  return std::string(status.message());
}

// Adds one to the byte at `position` of a file.
void ChangeByte(const fs::path& path, std::streamoff position) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(position);
  const int byte = file.get();
  file.seekp(position);
  file.put(static_cast<char>(byte + 1));
}

}  // namespace

TEST_CASE("Any number of ranks resumes from the files of any other", "[tensor_file][state]") {
  const ModelSpec spec = testing::StoredSpec();
  for (const int64_t world : {1, 2, 3, 13}) {
    const testing::TempDir dir;
    WriteAll(dir.path(), spec, world);
    const auto reader = TrainingStateReader::Open(dir.path(), HfTensors(spec)).value();
    REQUIRE(reader->header().world == world);
    REQUIRE(reader->header().step == 5);
    REQUIRE(reader->header().optimizer_step == 4);
    REQUIRE(reader->header().extra.at("random") == "0");
    const std::vector<TensorSpec> tensors = HfTensors(spec);
    for (size_t number = 0; number < tensors.size(); ++number) {
      const TensorSpec& tensor = tensors[number];
      for (int64_t rank = 0; rank < 4; ++rank) {
        const RowRange range = ShardRows(tensor.shape[0], rank, 4);
        std::vector<float> rows(static_cast<size_t>(range.rows() * RowElements(tensor)), -1.0f);
        for (const StatePart part :
             {StatePart::kMaster, StatePart::kExpAvg, StatePart::kExpAvgSq}) {
          REQUIRE(reader->ReadRows(tensor.name, part, range.begin, range.rows(), rows.data()).ok());
          for (size_t i = 0; i < rows.size(); ++i) {
            const int64_t index = range.begin * RowElements(tensor) + static_cast<int64_t>(i);
            REQUIRE(rows[i] == Value(number, index, part));
          }
        }
      }
    }
    REQUIRE(!reader->ReadRows(tensors[0].name, StatePart::kMaster, 11, 2, nullptr).ok());
    REQUIRE(!reader->ReadRows("other", StatePart::kMaster, 0, 1, nullptr).ok());
  }
}

TEST_CASE("State saved before the first optimizer step has no moments", "[tensor_file][state]") {
  const testing::TempDir dir;
  const ModelSpec spec = testing::StoredSpec();
  WriteAll(dir.path(), spec, 2, false);
  const auto reader = TrainingStateReader::Open(dir.path(), HfTensors(spec)).value();
  REQUIRE(!reader->header().has_moments);
  float row[8];
  REQUIRE(reader->ReadRows("model.embed_tokens.weight", StatePart::kMaster, 0, 1, row).ok());
  REQUIRE(reader->ReadRows("model.embed_tokens.weight", StatePart::kExpAvg, 0, 1, row).code() ==
          absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("A missing, mixed or stale rank file is named", "[tensor_file][state]") {
  const testing::TempDir dir;
  const ModelSpec spec = testing::StoredSpec();
  REQUIRE_THAT(TrainingStateOpenError(dir.path(), spec, absl::StatusCode::kNotFound),
               Contains("not a complete checkpoint"));
  WriteAll(dir.path(), spec, 2);
  const fs::path second = dir.path() / TrainingStateFileName(1, 2);
  fs::rename(second, dir.path() / "kept");
  REQUIRE_THAT(TrainingStateOpenError(dir.path(), spec, absl::StatusCode::kNotFound),
               Contains("rank 1 of 2") && Contains(second.string()));
  fs::copy_file(dir.path() / TrainingStateFileName(0, 2), second);
  REQUIRE_THAT(TrainingStateOpenError(dir.path(), spec, absl::StatusCode::kInvalidArgument),
               Contains("written by rank 0 of 2"));
  fs::remove(second);
  fs::rename(dir.path() / "kept", second);
  fs::copy_file(second, dir.path() / TrainingStateFileName(2, 3));
  REQUIRE_THAT(TrainingStateOpenError(dir.path(), spec, absl::StatusCode::kInvalidArgument),
               Contains("different runs"));
}

TEST_CASE("Gaps, duplicates and torn checkpoints are refused", "[tensor_file][state]") {
  const testing::TempDir dir;
  const ModelSpec spec = testing::StoredSpec();
  WriteAll(dir.path(), spec, 2);
  RankState state = MakeRank(spec, 1, 2);
  state.shards[0].row_begin = 5;
  REQUIRE(WriteTrainingState(dir.path(), state.header, state.shards).ok());
  REQUIRE_THAT(TrainingStateOpenError(dir.path(), spec, absl::StatusCode::kInvalidArgument),
               Contains("rows [5, 6) of tensor model.embed_tokens.weight are saved twice"));
  state.shards[0].row_begin = 7;
  REQUIRE(WriteTrainingState(dir.path(), state.header, state.shards).ok());
  REQUIRE_THAT(TrainingStateOpenError(dir.path(), spec, absl::StatusCode::kInvalidArgument),
               Contains("rows [6, 7) of tensor model.embed_tokens.weight are saved by no rank"));
  state.shards[0].row_begin = 6;
  state.shards[0].rows = 5;
  REQUIRE(WriteTrainingState(dir.path(), state.header, state.shards).ok());
  REQUIRE_THAT(TrainingStateOpenError(dir.path(), spec, absl::StatusCode::kInvalidArgument),
               Contains("has 12 rows, the ranks saved 11"));
  state = MakeRank(spec, 1, 2);
  state.header.step = 6;
  REQUIRE(WriteTrainingState(dir.path(), state.header, state.shards).ok());
  REQUIRE_THAT(TrainingStateOpenError(dir.path(), spec, absl::StatusCode::kInvalidArgument),
               Contains("rank 1 saved step 6") && Contains("torn"));
}

TEST_CASE("Another model's or a corrupt state is refused", "[tensor_file][state]") {
  const testing::TempDir dir;
  WriteAll(dir.path(), testing::StoredSpec(), 1);
  REQUIRE_THAT(TrainingStateOpenError(dir.path(), testing::StoredSpec(false),
                                      absl::StatusCode::kInvalidArgument),
               Contains("lm_head.weight"));
  ModelSpec larger = testing::StoredSpec();
  larger.vocab_size = 13;
  REQUIRE_THAT(TrainingStateOpenError(dir.path(), larger, absl::StatusCode::kInvalidArgument),
               Contains("[12, 8]") && Contains("[13, 8]"));
  const fs::path file = dir.path() / TrainingStateFileName(0, 1);
  fs::resize_file(file, fs::file_size(file) - 4);
  REQUIRE_THAT(
      TrainingStateOpenError(dir.path(), testing::StoredSpec(), absl::StatusCode::kDataLoss),
      Contains("rank 0 of 1"));
}

TEST_CASE("A single changed byte is refused, and the file and tensor named",
          "[tensor_file][state]") {
  const testing::TempDir dir;
  const ModelSpec spec = testing::StoredSpec();
  WriteAll(dir.path(), spec, 2);
  const fs::path file = dir.path() / TrainingStateFileName(1, 2);
  const std::string last = HfTensors(spec).back().name;
  const int64_t rows = HfTensors(spec).back().shape[0];
  std::vector<float> values(static_cast<size_t>(NumElements(HfTensors(spec).back().shape)));
  ChangeByte(file, static_cast<std::streamoff>(fs::file_size(file)) - 3);
  auto reader = TrainingStateReader::Open(dir.path(), HfTensors(spec)).value();
  // The last part of the last tensor.
  REQUIRE(reader->ReadRows(last, StatePart::kMaster, 0, rows, values.data()).ok());
  const absl::Status damaged = reader->ReadRows(last, StatePart::kExpAvgSq, 0, rows, values.data());
  REQUIRE(damaged.code() == absl::StatusCode::kDataLoss);
  REQUIRE_THAT(std::string(damaged.message()),
               Contains(file.string() + " is damaged") && Contains(last + "/exp_avg_sq"));

  WriteAll(dir.path(), spec, 2);
  std::ifstream in(file, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  // Escaped, as the header is a string in the file's own.
  const std::string step = "\\\"optimizer_step\\\":";
  REQUIRE(bytes.find(step) != std::string::npos);
  ChangeByte(file, static_cast<std::streamoff>(bytes.find(step) + step.size()));
  REQUIRE_THAT(TrainingStateOpenError(dir.path(), spec, absl::StatusCode::kDataLoss),
               Contains(file.string() + " is damaged: its header"));
}

}  // namespace tandem
