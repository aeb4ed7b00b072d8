#include "controller/store/checkpoint_index.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "common/formats/files.h"
#include "tests/fakes/failing_renames.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

using testing::FailingRenames;

CheckpointIndex Open(const fs::path& dir, int64_t keep = 0) {
  auto index = CheckpointIndex::Open(dir, keep);
  REQUIRE(index.ok());
  return *std::move(index);
}

void Write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

std::string Save(CheckpointIndex& index, int64_t step) {
  const auto folder = index.Begin(step);
  REQUIRE(folder.ok());
  Write(fs::path(*folder) / "shard-0", "0123456789");
  Write(fs::path(*folder) / "huggingface" / "config.json", "{}");
  const auto path = index.Commit(
      step, {.step = step, .version = 2 * step, .data = {.epoch = 1, .row = 8 * step}});
  REQUIRE(path.ok());
  return *path;
}

}  // namespace

TEST_CASE("A checkpoint comes back as it was saved", "[checkpoint]") {
  testing::TempDir dir;
  CheckpointIndex index = Open(dir.path());
  const std::string path = Save(index, 3);
  const auto state = CheckpointIndex::ReadState(path);
  REQUIRE(state.ok());
  REQUIRE(state->step == 3);
  REQUIRE(state->version == 6);
  REQUIRE(state->data == DataPosition{.epoch = 1, .row = 24});
  REQUIRE(state->files.at("shard-0") == 10);
  REQUIRE(CheckpointIndex::HfExport(path) == path + "/huggingface");
  std::string latest;
  std::ifstream(dir.path() / "latest") >> latest;
  REQUIRE(latest == "step_3");
  REQUIRE(index.FindNewest().newest->step == 3);
}

TEST_CASE("A checkpoint keeps the KL coefficient to the last bit", "[checkpoint]") {
  testing::TempDir dir;
  CheckpointIndex index = Open(dir.path());
  REQUIRE_FALSE(CheckpointIndex::ReadState(Save(index, 1))->kl_coef.has_value());
  const double coef = 0.1 * (1 + 0.2 / 3);
  REQUIRE(index.Begin(2).ok());
  const auto path = index.Commit(2, {.step = 2, .kl_coef = coef, .skipped_in_a_row = 2});
  REQUIRE(path.ok());
  REQUIRE(CheckpointIndex::ReadState(*path)->kl_coef == coef);
  REQUIRE(CheckpointIndex::ReadState(*path)->skipped_in_a_row == 2);
}

TEST_CASE("A checkpoint of a build before both is read", "[checkpoint]") {
  testing::TempDir dir;
  CheckpointIndex index = Open(dir.path());
  const std::string path = Save(index, 1);
  const std::string file = path + "/controller_state.json";
  std::string json = ReadWholeFile(file).value();
  const size_t at = json.find("\"skipped_in_a_row\"");
  REQUIRE(at != std::string::npos);
  json.erase(at, json.find('\n', at) - at);
  std::ofstream(file) << json;
  REQUIRE(CheckpointIndex::ReadState(path)->skipped_in_a_row == 0);
}

TEST_CASE("A kill while a checkpoint is written leaves the one before", "[checkpoint]") {
  testing::TempDir dir;
  {
    CheckpointIndex index = Open(dir.path(), 1);
    Save(index, 1);
    const auto folder = index.Begin(2);  // killed: nothing, or some of the trainers' files, there
    Write(fs::path(*folder) / "shard-0", "half");
  }
  CheckpointIndex index = Open(dir.path(), 1);
  REQUIRE_FALSE(fs::exists(dir.path() / "step_2.tmp"));
  REQUIRE(index.FindNewest().newest->step == 1);
}

TEST_CASE("A kill after the state was written but before the rename leaves the one before",
          "[checkpoint]") {
  testing::TempDir dir;
  {
    CheckpointIndex index = Open(dir.path());
    Save(index, 1);
    Save(index, 2);
    fs::rename(dir.path() / "step_2", dir.path() / "step_2.tmp");
  }
  REQUIRE(Open(dir.path()).FindNewest().newest->step == 1);
}

TEST_CASE("A kill between the two renames of a replaced checkpoint brings the old one back",
          "[checkpoint]") {
  testing::TempDir dir;
  {
    CheckpointIndex index = Open(dir.path(), 1);
    Save(index, 1);
    fs::rename(dir.path() / "step_1", dir.path() / "step_1.replaced.tmp");
    Write(dir.path() / "step_1.tmp" / "shard-0", "new");
  }
  REQUIRE(Open(dir.path(), 1).FindNewest().newest->step == 1);
}

namespace {

// A checkpoint of step 1 whose contents are to be replaced.
struct ReplacedCheckpoint {
  ReplacedCheckpoint() {
    CheckpointIndex index = Index();
    Save(index, 1);
  }
  CheckpointIndex Index() { return *CheckpointIndex::Open(dir.path().string(), 0, renames); }
  // As a repeated step does, with other contents, and as Checkpointer::Save after a failure.
  absl::Status Replace() {
    CheckpointIndex index = Index();
    renames.renames = 0;
    const auto folder = index.Begin(1);
    REQUIRE(folder.ok());
    Write(fs::path(*folder) / "shard-0", "new bytes that are more");
    const absl::Status status = index.Commit(1, {.step = 1}).status();
    if (!status.ok()) index.Abandon(1);
    return status;
  }
  // Of the newest checkpoint that an index finds.
  static std::string Contents(const CheckpointIndex& index) {
    const FoundCheckpoint found = index.FindNewest();
    REQUIRE(found.newest);
    REQUIRE(found.newest->step == 1);
    return ReadWholeFile(found.newest->path + "/shard-0").value();
  }

  testing::TempDir dir;
  FailingRenames renames;
};

}  // namespace

TEST_CASE("A repeated step swaps its checkpoint, or renames twice where it cannot",
          "[checkpoint]") {
  for (const int error : {0, EINVAL, ENOSYS}) {
    ReplacedCheckpoint f;
    f.renames.exchange_error = error;
    REQUIRE(f.Replace().ok());
    REQUIRE(f.renames.renames == (error == 0 ? 0 : 2));
    REQUIRE(ReplacedCheckpoint::Contents(f.Index()) == "new bytes that are more");
    REQUIRE(f.Index().List().size() == 1);
    REQUIRE_FALSE(fs::exists(f.dir.path() / "step_1.tmp"));
    REQUIRE_FALSE(fs::exists(f.dir.path() / "step_1.replaced.tmp"));
  }
}

TEST_CASE("A failure between the two renames of a commit leaves the older checkpoint known",
          "[checkpoint]") {
  // The swap itself fails; the first rename; the second; the second, and the one that undoes the
  // first.
  const std::vector<std::pair<int, std::set<int>>> failures = {
      {EIO, {}}, {EINVAL, {1}}, {EINVAL, {2}}, {EINVAL, {2, 3}}};
  for (const auto& [exchange_error, fails] : failures) {
    INFO("exchange " << exchange_error << ", " << fails.size() << " renames fail");
    ReplacedCheckpoint f;
    f.renames.exchange_error = exchange_error;
    f.renames.fails = fails;
    const absl::Status status = f.Replace();
    REQUIRE_FALSE(status.ok());
    REQUIRE(std::string(status.message()).find("step_1.tmp") != std::string::npos);
    f.renames.fails.clear();
    // By who only looks, as a dry run does; by the same process; and by the next start.
    REQUIRE(ReplacedCheckpoint::Contents(CheckpointIndex::OpenReadOnly(f.dir.path())) ==
            "0123456789");
    REQUIRE(CheckpointIndex::OpenReadOnly(f.dir.path()).List().size() == 1);
    REQUIRE(ReplacedCheckpoint::Contents(f.Index()) == "0123456789");
    REQUIRE(fs::exists(f.dir.path() / "step_1"));
    REQUIRE(f.Replace().ok() == (exchange_error == EINVAL));
  }
}

TEST_CASE("A kill before `latest` is written does not matter: folders decide", "[checkpoint]") {
  testing::TempDir dir;
  CheckpointIndex index = Open(dir.path());
  Save(index, 1);
  Save(index, 2);
  Write(dir.path() / "latest", "step_1\n");
  REQUIRE(index.FindNewest().newest->step == 2);
}

TEST_CASE("A damaged checkpoint is left out, with the reason", "[checkpoint]") {
  testing::TempDir dir;
  CheckpointIndex index = Open(dir.path());
  Save(index, 1);
  const std::string second = Save(index, 2);
  const std::string third = Save(index, 3);
  Write(fs::path(second) / "shard-0", "cut");
  fs::remove(fs::path(third) / "shard-0");
  const auto state = CheckpointIndex::ReadState(second);
  REQUIRE(absl::IsDataLoss(state.status()));
  REQUIRE(std::string(state.status().message()).find("shard-0: 3 bytes long, 10 bytes") !=
          std::string::npos);
  REQUIRE(absl::IsDataLoss(CheckpointIndex::ReadState(third).status()));
  REQUIRE(index.FindNewest().newest->step == 1);
  const std::vector<std::string> left_out = index.FindNewest().left_out;
  REQUIRE(left_out.size() == 2);
  REQUIRE(left_out[0].find("shard-0: missing") != std::string::npos);
  fs::create_directories(dir.path() / "step_4");  // a copy that was interrupted
  REQUIRE(index.FindNewest().left_out.size() == 3);
  Write(fs::path(second) / "controller_state.json", "{}");
  REQUIRE(absl::IsDataLoss(CheckpointIndex::ReadState(second).status()));
  REQUIRE(absl::IsNotFound(CheckpointIndex::ReadState(dir.path()).status()));
}

TEST_CASE("What else makes a checkpoint whole is asked of the newest, as far as needed",
          "[checkpoint]") {
  testing::TempDir dir;
  CheckpointIndex index = Open(dir.path());
  Save(index, 1);
  Save(index, 2);
  const std::string third = Save(index, 3);
  std::vector<std::string> asked;
  const FoundCheckpoint found = index.FindNewest([&](const std::string& path) {
    asked.push_back(path);
    return path == third ? absl::DataLossError("torn") : absl::OkStatus();
  });
  REQUIRE(found.newest->step == 2);
  REQUIRE(found.left_out == std::vector<std::string>{third + ": torn"});
  REQUIRE(asked.size() == 2);
}

TEST_CASE("Keep-last-N removes whole older checkpoints, never the only good one", "[checkpoint]") {
  testing::TempDir dir;
  CheckpointIndex index = Open(dir.path(), 1);
  Save(index, 1);
  const std::string second = Save(index, 2);
  REQUIRE(index.List().size() == 1);
  // The newest is damaged: it does not count, and the good one before it stays.
  fs::remove(fs::path(second) / "shard-0");
  Save(index, 3);
  REQUIRE(index.FindNewest().newest->step == 3);
  REQUIRE(fs::exists(dir.path() / "step_3"));
}

TEST_CASE("Checkpoints that are moved are those after a step, with what names them",
          "[checkpoint]") {
  testing::TempDir dir;
  CheckpointIndex index = Open(dir.path() / "checkpoints");
  Save(index, 1);
  Save(index, 2);
  const fs::path folder = dir.path() / "aside";
  fs::create_directories(folder);
  REQUIRE(index.MarkFinished(2).ok());
  REQUIRE_FALSE(index.HasAfter(2));
  REQUIRE(index.HasAfter(1));
  for (int call = 1; call <= 2; ++call) {  // a call again changes nothing
    REQUIRE(index.MoveAfter(1, folder.string()).ok());
    REQUIRE(index.List().size() == 1);
    REQUIRE(fs::exists(folder / "step_2"));
    REQUIRE(ReadWholeFile((folder / "latest").string()).value() == "step_2\n");
    REQUIRE(ReadWholeFile((folder / "finished").string()).value() == "2\n");
    REQUIRE_FALSE(index.FinishedStep());
    // Of those that stay.
    REQUIRE(ReadWholeFile(index.dir() + "/latest").value() == "step_1\n");
  }
  const fs::path second = dir.path() / "aside-2";
  fs::create_directories(second);
  REQUIRE(index.MoveAfter(-1, second.string()).ok());
  REQUIRE(index.List().empty());
  REQUIRE(fs::exists(second / "step_1"));
  REQUIRE_FALSE(fs::exists(index.dir() + "/latest"));
}

TEST_CASE("A checkpoint that is moved replaces nothing", "[checkpoint]") {
  testing::TempDir dir;
  CheckpointIndex index = Open(dir.path() / "checkpoints");
  Save(index, 1);
  Write(dir.path() / "aside" / "step_1" / "kept", "");
  const absl::Status status = index.MoveAfter(-1, (dir.path() / "aside").string());
  REQUIRE(absl::IsFailedPrecondition(status));
  REQUIRE(std::string(status.message()).find("aside/step_1, which exists") != std::string::npos);
  REQUIRE(index.List().size() == 1);
}

TEST_CASE("A checkpoint that is complete counts where `latest` cannot be written", "[checkpoint]") {
  testing::TempDir dir;
  CheckpointIndex index = Open(dir.path(), 1);
  Save(index, 1);
  fs::remove(dir.path() / "latest");
  Write(dir.path() / "latest" / "a file", "");  // a folder stands in its place
  REQUIRE(fs::exists(Save(index, 2)));
  REQUIRE(index.List().size() == 1);  // the old one was removed
  REQUIRE(index.FindNewest().newest->step == 2);
  fs::remove_all(dir.path() / "latest");
  Save(index, 3);
  REQUIRE(ReadWholeFile((dir.path() / "latest").string()).value() == "step_3\n");
}

}  // namespace tandem
