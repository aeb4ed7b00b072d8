#include "controller/run/resume_point.h"

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"
#include "common/formats/files.h"
#include "common/model_spec/model_spec.h"
#include "common/process/exit_code.h"
#include "controller/assembly/dry_run.h"
#include "controller/assembly/run_options.h"
#include "tests/controller/partial_rollout/buffer_run.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;

namespace fs = std::filesystem;

ModelSpec SpecOfWidth(int64_t hidden_size) {
  return {.model_type = "llama",
          .vocab_size = 8,
          .hidden_size = hidden_size,
          .num_layers = 1,
          .num_heads = 1,
          .num_kv_heads = 1,
          .head_dim = 4,
          .intermediate_size = 4,
          .max_position = 8};
}

void WriteModel(const fs::path& dir, int64_t hidden_size) {
  fs::create_directories(dir);
  std::ofstream(dir / "config.json") << ModelConfigJson(SpecOfWidth(hidden_size));
}

void SaveBuffer(const std::string& checkpoint, int64_t step) {
  const BufferRun run;
  REQUIRE(run.buffer->Add(SomePrompts(0, 1)).ok());
  REQUIRE(run.buffer->Save(checkpoint, step).ok());
}

// Another byte in the middle of a file, which keeps its size.
void Damage(const std::string& path) {
  std::string bytes = ReadWholeFile(path).value();
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// A run directory with checkpoints.
struct ResumePointFolder {
  explicit ResumePointFolder(const std::string& name = "run") : run_dir(dir.path() / name) {
    fs::create_directories(run_dir);
    WriteModel(dir.path() / "model", 4);
    config = *Load({});
  }

  absl::StatusOr<v1::Config> Load(std::vector<std::string> overrides) const {
    overrides.push_back("cluster.run_dir=" + run_dir.string());
    overrides.push_back("model.path=" + (dir.path() / "model").string());
    const auto loaded = LoadConfig("", overrides);
    if (!loaded.ok()) return loaded.status();
    return loaded->config;
  }
  CheckpointIndex Index() const {
    auto index = CheckpointIndex::Open((run_dir / "checkpoints").string(), 0);
    REQUIRE(index.ok());
    return *std::move(index);
  }
  // `buffer`: with a group that is not trained yet.
  std::string Save(int64_t step, bool buffer = false) const {
    CheckpointIndex index = Index();
    const auto folder = index.Begin(step);
    REQUIRE(folder.ok());
    WriteModel(*folder, 4);
    if (buffer) SaveBuffer(*folder, step);
    const auto path = index.Commit(step, {.step = step, .config_yaml = ConfigToYaml(config)});
    REQUIRE(path.ok());
    return *path;
  }
  absl::StatusOr<ResumePoint> Choose(const std::vector<std::string>& overrides = {},
                                     const std::string& launch_id = "",
                                     int64_t total_steps = 50) const {
    CheckpointIndex index = Index();
    return ChooseResumePoint(*Load(overrides), {.total_steps = total_steps, .launch_id = launch_id},
                             index);
  }
  // What a start chooses whose workers come up: it takes the folder over.
  absl::StatusOr<ResumePoint> Start(const std::vector<std::string>& overrides = {},
                                    const std::string& launch_id = "") const {
    absl::StatusOr<ResumePoint> point = Choose(overrides, launch_id);
    if (!point.ok()) return point;
    CheckpointIndex index = Index();
    REQUIRE(EarlierRun(run_dir.string(), index, point->set_aside, point->step).Move().ok());
    REQUIRE(ClaimForLaunch(run_dir.string(), launch_id).ok());
    return point;
  }

  testing::TempDir dir;
  fs::path run_dir;
  v1::Config config;
};

}  // namespace

namespace {

const std::vector<PinnedInput> kInputs = {
    {.key = "data.train_files", .path = "/a/train.jsonl", .bytes = 5, .digest = "aa"}};

// A checkpoint of step 1 that was made with `inputs`.
std::string SavePinned(const ResumePointFolder& f, const std::vector<PinnedInput>& inputs) {
  CheckpointIndex index = f.Index();
  const auto folder = index.Begin(1);
  REQUIRE(folder.ok());
  WriteModel(*folder, 4);
  const auto path =
      index.Commit(1, {.step = 1, .config_yaml = ConfigToYaml(f.config), .inputs = inputs});
  REQUIRE(path.ok());
  return *path;
}

absl::StatusOr<ResumePoint> ResumeWith(const ResumePointFolder& f,
                                       const std::vector<PinnedInput>& inputs,
                                       const std::vector<std::string>& overrides = {}) {
  CheckpointIndex index = f.Index();
  return ChooseResumePoint(*f.Load(overrides),
                           {.total_steps = 50, .inputs = [&] { return inputs; }}, index);
}

}  // namespace

TEST_CASE("Inputs with another content are refused by name unless they are accepted", "[resume]") {
  const ResumePointFolder f;
  const std::string path = SavePinned(f, kInputs);
  REQUIRE(CheckpointIndex::ReadState(path)->inputs == kInputs);
  REQUIRE(ResumeWith(f, kInputs)->warnings.empty());
  std::vector<PinnedInput> others = kInputs;
  others[0].digest = "bb";
  const auto refused = ResumeWith(f, others);
  REQUIRE(absl::IsInvalidArgument(refused.status()));
  const std::string message(refused.status().message());
  REQUIRE(Has(message, path));
  REQUIRE(Has(message,
              "data.train_files: /a/train.jsonl has another content: then 5 bytes, "
              "digest aa, now 5 bytes, digest bb"));
  REQUIRE(Has(message, "trainer.resume_changed_inputs=accept"));
  const auto accepted = ResumeWith(f, others, {"trainer.resume_changed_inputs=accept"});
  REQUIRE(accepted->checkpoint == path);
  REQUIRE(accepted->warnings.size() == 1);
  REQUIRE(Has(accepted->warnings[0], "digest aa, now 5 bytes, digest bb"));
}

TEST_CASE("Data that was moved is no change of the run", "[resume]") {
  const ResumePointFolder f;
  SavePinned(f, kInputs);
  REQUIRE(ResumeWith(f, kInputs, {"data.train_files=[/b/train.jsonl]"})->warnings.empty());
  // Where nothing is known of the contents, the paths are compared.
  REQUIRE(f.Choose({"data.train_files=[/b/train.jsonl]"})->warnings.size() == 1);
}

TEST_CASE("A checkpoint without digests is resumed with a note", "[resume]") {
  const ResumePointFolder f;
  const std::string path = SavePinned(f, {});
  const auto point = ResumeWith(f, kInputs);
  REQUIRE(point->checkpoint == path);
  REQUIRE(point->warnings.empty());
  REQUIRE(Has(point->note, "no digests of data and model"));
}

TEST_CASE("Only a run that is marked finished starts anew", "[resume]") {
  const ResumePointFolder f;
  REQUIRE(f.Choose()->checkpoint.empty());
  const std::string last = f.Save(50);
  // All steps are done, but the validation or the report may be missing.
  REQUIRE(f.Choose()->checkpoint == last);
  REQUIRE(f.Choose()->step == 50);
  REQUIRE(f.Index().MarkFinished(50).ok());
  // More steps than it was finished with: it goes on.
  REQUIRE(f.Choose({}, "", 60)->checkpoint == last);
  const auto anew = f.Choose();
  REQUIRE(anew->checkpoint.empty());
  REQUIRE(Has(anew->note, "had finished its 50 steps"));
  // The start may still fail.
  REQUIRE(f.Index().FinishedStep() == 50);
  REQUIRE_FALSE(fs::exists(f.run_dir / "checkpoints.previous"));
  REQUIRE(Has(f.Start()->note, "had finished its 50 steps"));
  REQUIRE(fs::exists(f.run_dir / "checkpoints.previous" / "step_50"));
  REQUIRE(fs::exists(f.run_dir / "checkpoints.previous" / "finished"));
  REQUIRE(f.Choose()->note.empty());
}

TEST_CASE("A finished run whose time was bounded starts anew, or goes on where it no longer is",
          "[resume]") {
  const ResumePointFolder f;
  const std::string last = f.Save(14);
  REQUIRE(f.Choose({"trainer.max_seconds=300"})->checkpoint == last);
  REQUIRE(f.Index().MarkFinished(14).ok());
  const auto on = f.Choose();
  REQUIRE(on->checkpoint == last);
  REQUIRE(on->warnings.empty());
  REQUIRE(Has(f.Choose({"trainer.max_seconds=300"})->note, "had finished its 14 steps"));
}

TEST_CASE("A dry run tells where a start would begin, and moves nothing", "[resume]") {
  const ResumePointFolder f;
  int64_t staying = -1;  // checkpoints, says the newest call of said
  const auto said = [&](std::vector<std::string> overrides, int64_t total_steps = 50) {
    const auto start = PreviewStart(*f.Load(std::move(overrides)), {.total_steps = total_steps});
    INFO(start.status().ToString());
    REQUIRE(start.ok());
    staying = start->staying_checkpoints;
    std::string text;
    for (const std::string& line : start->lines) text += line + "\n";
    return text;
  };
  REQUIRE(Has(said({}), "a start now: from the model; no checkpoint is in "));
  REQUIRE_FALSE(fs::exists(f.run_dir / "checkpoints"));
  const std::string early = f.Save(5), last = f.Save(50);
  REQUIRE(staying == 0);
  REQUIRE(Has(said({}), "a start now: resuming from " + last + " (step 50"));
  REQUIRE(staying == 2);
  REQUIRE(
      Has(said({"actor.optim.lr=0.5"}), "warning: the configuration differs from that of " + last));
  REQUIRE(Has(said({"trainer.resume_mode=resume_path", "trainer.resume_from_path=" + early}),
              "resuming from " + early + " (step 5"));
  REQUIRE(staying == 1);
  REQUIRE(f.Index().MarkFinished(50).ok());
  for (const std::string& text : {said({}), said({"trainer.resume_mode=disable"})}) {
    INFO(text);
    REQUIRE(Has(text, "starting over; its checkpoints and records move to " +
                          (f.run_dir / "checkpoints.previous").string() +
                          " once the workers are up"));
    REQUIRE(staying == 0);
  }
  REQUIRE(Has(said({}, 60), "resuming from " + last));
  REQUIRE_FALSE(fs::exists(f.run_dir / "checkpoints.previous"));
  REQUIRE(fs::exists(early));
  REQUIRE(f.Index().FinishedStep() == 50);
  fs::remove(fs::path(early) / "config.json");
  fs::remove(fs::path(last) / "config.json");
  REQUIRE(absl::IsDataLoss(PreviewStart(*f.Load({}), {.total_steps = 60}).status()));
}

TEST_CASE("A start that only looks finds what a start would, and a finished run, and moves nothing",
          "[resume]") {
  const ResumePointFolder f;
  const auto peek = [&](const std::vector<std::string>& overrides) {
    return PeekResumePoint(*f.Load(overrides), f.Index());
  };
  REQUIRE(peek({})->checkpoint.empty());
  const std::string early = f.Save(5), last = f.Save(50);
  REQUIRE(f.Index().MarkFinished(50).ok());
  REQUIRE(peek({})->checkpoint == last);
  REQUIRE(peek({})->step == 50);
  REQUIRE(peek({"trainer.resume_mode=disable"})->checkpoint.empty());
  REQUIRE(
      peek({"trainer.resume_mode=resume_path", "trainer.resume_from_path=" + early})->checkpoint ==
      early);
  REQUIRE(f.Index().FinishedStep() == 50);
  REQUIRE_FALSE(fs::exists(f.run_dir / "checkpoints.previous"));
  REQUIRE(f.Index().FindNewest().newest->path == last);
  // Nobody goes on, so what that would change is not told.
  const auto changed = peek({"actor.optim.lr=0.5"});
  REQUIRE(changed->warnings.empty());
  REQUIRE(changed->note.rfind("looking at " + last + " (step 50", 0) == 0);
}

TEST_CASE("A look into a folder of checkpoints changes nothing there", "[resume]") {
  const ResumePointFolder f;
  const std::string whole = f.Save(5), damaged = f.Save(50);
  fs::remove(fs::path(damaged) / "controller_state.json");
  const fs::path checkpoints = f.run_dir / "checkpoints";
  fs::create_directories(checkpoints / "step_60.tmp");
  const auto look = [&](const fs::path& dir) {
    return PeekResumePoint(*f.Load({}), CheckpointIndex::OpenReadOnly(dir));
  };
  const auto point = look(checkpoints);
  REQUIRE(point->checkpoint == whole);
  REQUIRE(point->warnings.size() == 1);
  REQUIRE(Has(point->warnings[0], "newer checkpoints are incomplete and are skipped\n  "));
  REQUIRE(fs::exists(checkpoints / "step_60.tmp"));
  REQUIRE(look(f.run_dir / "none")->checkpoint.empty());
  REQUIRE_FALSE(fs::exists(f.run_dir / "none"));
  fs::remove_all(whole);
  REQUIRE(Has(std::string(look(checkpoints).status().message()),
              "or look at the model itself with trainer.resume_mode=disable"));
}

TEST_CASE("A checkpoint that is begun ends the finished state", "[resume]") {
  const ResumePointFolder f;
  f.Save(50);
  REQUIRE(f.Index().MarkFinished(50).ok());
  REQUIRE(f.Index().FinishedStep() == 50);
  f.Save(60);
  REQUIRE_FALSE(f.Index().FinishedStep());
}

TEST_CASE("A restart goes on from its own checkpoint, whatever the resume mode", "[resume]") {
  const ResumePointFolder f;
  f.Save(10);
  const std::vector<std::string> disable = {"trainer.resume_mode=disable"};
  // The first start of a launch does as it is told, also if it died before it could say so.
  REQUIRE(f.Choose(disable, "launch-1")->set_aside == SetAside::kWholeRun);
  REQUIRE(f.Start(disable, "launch-1")->checkpoint.empty());
  REQUIRE_FALSE(fs::exists(f.run_dir / "checkpoints" / "step_10"));
  std::ofstream(f.run_dir / "run.db") << "the launch's own records";
  const auto again = f.Start(disable, "launch-1");  // nothing saved yet
  REQUIRE(again->checkpoint.empty());
  REQUIRE(again->set_aside == SetAside::kNothing);
  REQUIRE(again->note.empty());
  REQUIRE(fs::exists(f.run_dir / "run.db"));
  const std::string own = f.Save(5);
  REQUIRE(f.Choose(disable, "launch-1")->checkpoint == own);
  REQUIRE(f.Choose(disable, "launch-1")->step == 5);
  // The user's own next start is another launch.
  REQUIRE(f.Start(disable, "launch-2")->checkpoint.empty());
  REQUIRE_FALSE(fs::exists(own));
  REQUIRE_FALSE(fs::exists(f.run_dir / "run.db"));
}

TEST_CASE("A restart of a run that began from a path goes on from its own checkpoint", "[resume]") {
  const ResumePointFolder other("other");
  const ResumePointFolder f;
  const std::string start = other.Save(7);
  f.Save(20);  // of another run in this folder
  const std::vector<std::string> from = {"trainer.resume_mode=resume_path",
                                         "trainer.resume_from_path=" + start};
  REQUIRE(f.Start(from, "launch-1")->checkpoint == start);
  REQUIRE(fs::exists(f.run_dir / "checkpoints.previous" / "step_20"));
  REQUIRE(f.Choose(from, "launch-1")->checkpoint == start);  // nothing saved yet
  const std::string own = f.Save(8);
  REQUIRE(f.Choose(from, "launch-1")->checkpoint == own);
}

TEST_CASE("A start from another folder ends a move whose checkpoints were all moved", "[resume]") {
  const ResumePointFolder other("other");
  const ResumePointFolder f;
  const std::string start = other.Save(7);
  const std::string previous = (f.run_dir / "checkpoints.previous").string();
  fs::create_directories(previous);
  std::ofstream(f.run_dir / "moving")
      << "{\"checkpoints\":\"" << previous << "\",\"records\":\"" << previous << "\"}\n";
  REQUIRE(f.Index().MarkFinished(20).ok());
  const auto point =
      f.Start({"trainer.resume_mode=resume_path", "trainer.resume_from_path=" + start});
  REQUIRE(point->set_aside == SetAside::kWholeRun);
  REQUIRE(Has(point->note, previous));
  REQUIRE(fs::exists(previous + "/finished"));
  REQUIRE_FALSE(fs::exists(f.run_dir / "moving"));
}

TEST_CASE("Going back to a checkpoint of the same folder sets the later ones aside", "[resume]") {
  const ResumePointFolder f;
  const std::string early = f.Save(5);
  f.Save(10);
  const std::vector<std::string> from = {"trainer.resume_mode=resume_path",
                                         "trainer.resume_from_path=" + early};
  const auto point = f.Start(from);
  REQUIRE(point->checkpoint == early);
  REQUIRE(Has(point->note, "checkpoints of later steps move to"));
  REQUIRE(fs::exists(early));
  REQUIRE(fs::exists(f.run_dir / "checkpoints.previous" / "step_10"));
  REQUIRE(f.Choose()->checkpoint == early);
}

TEST_CASE("Changed keys that bear on the training are listed at a resume", "[resume]") {
  const ResumePointFolder f;
  f.Save(10);
  REQUIRE(f.Choose()->warnings.empty());
  REQUIRE(f.Choose({"cluster.heartbeat_seconds=2", "trainer.save_freq=7", "rollout.max_num_seqs=3",
                    "trainer.logger=[jsonl]", "rollout.val_kwargs.n=4"})
              ->warnings.empty());
  const auto point = f.Choose({"actor.optim.lr=0.5", "rollout.n=3", "data.train_files=[/a, /b]",
                               "cluster.trainers=2", "cluster.rollouts=2",
                               "reward.terms=[{name: length, weight: 2}]"});
  REQUIRE(point->warnings.size() == 1);
  const std::string& warning = point->warnings.front();
  INFO(warning);
  REQUIRE(point->step == 10);
  REQUIRE(Has(warning, "actor.optim.lr: 1e-06 -> 0.5"));
  REQUIRE(Has(warning, "rollout.n: 8 -> 3"));
  REQUIRE(Has(warning, "data.train_files: [] -> [\"/a\",\"/b\"]"));
  REQUIRE(Has(warning, "cluster.trainers: 1 -> 2"));
  REQUIRE(Has(warning, "reward.terms: [] -> [{"));
  REQUIRE_FALSE(Has(warning, "cluster.rollouts"));
}

TEST_CASE("A checkpoint of another geometry is refused with sizes and remedy", "[resume]") {
  const ResumePointFolder f;
  f.Save(10);
  WriteModel(f.dir.path() / "model", 8);
  const absl::Status status = f.Choose().status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  INFO(message);
  REQUIRE(Has(message, "model.path"));
  REQUIRE(Has(message, "hidden_size 4 there, 8 here"));
  REQUIRE(Has(message, "trainer.resume_mode=disable"));
  REQUIRE(f.Choose({"trainer.resume_mode=disable"}).ok());
}

TEST_CASE("Checkpoints of which none is whole are no reason to start anew", "[resume]") {
  const ResumePointFolder f;
  const std::string first = f.Save(5);
  const std::string second = f.Save(10);
  fs::remove(fs::path(second) / "config.json");
  // An older one is whole: on from there, and told.
  const auto point = f.Choose();
  REQUIRE(point->checkpoint == first);
  REQUIRE(point->warnings.size() == 1);
  REQUIRE(Has(point->warnings[0], second + "/config.json: missing"));
  fs::remove(fs::path(first) / "controller_state.json");
  for (const std::string launch : {"", "launch-1"}) {
    const absl::Status refused = f.Choose({}, launch).status();
    REQUIRE(absl::IsDataLoss(refused));
    const std::string message(refused.message());
    INFO(message);
    REQUIRE(Has(message, second + "/config.json: missing"));
    REQUIRE(Has(message, first + " is not a complete checkpoint: it has no controller_state.json"));
    REQUIRE(Has(message, "trainer.resume_mode=disable"));
  }
  REQUIRE(f.Start({"trainer.resume_mode=disable"})->checkpoint.empty());
  REQUIRE(fs::exists(f.run_dir / "checkpoints.previous" / "step_10"));
}

TEST_CASE("A checkpoint whose buffer is damaged is left out as one of which files are missing",
          "[resume]") {
  const ResumePointFolder f;
  const std::string first = f.Save(5, /*buffer=*/true), second = f.Save(10, /*buffer=*/true);
  REQUIRE(f.Choose()->checkpoint == second);
  // The same number of bytes: only the rollout buffer's own digest tells.
  Damage(second + "/partial_pool/pool.jsonl");
  const auto point = f.Choose();
  REQUIRE(point->checkpoint == first);
  REQUIRE(point->step == 5);
  REQUIRE(point->warnings.size() == 1);
  INFO(point->warnings[0]);
  REQUIRE(Has(point->warnings[0], "newer checkpoints are incomplete and are skipped; their steps"));
  REQUIRE(Has(point->warnings[0], second + ": " + second + "/partial_pool/pool.jsonl: "));
  // It is used, so that nothing is left to be done.
  REQUIRE_FALSE(Has(point->warnings[0], "resume_path"));
  // Who only looks at weights does not need it.
  REQUIRE(PeekResumePoint(*f.Load({}), f.Index())->checkpoint == second);
  Damage(first + "/partial_pool/pool.jsonl");
  for (const std::string launch : {"", "launch-1"}) {
    const absl::Status refused = f.Choose({}, launch).status();
    REQUIRE(absl::IsDataLoss(refused));
    REQUIRE(ExitCodeAt(FailedAt::kInputs, refused) == kExitDataError);
    const std::string message(refused.message());
    INFO(message);
    REQUIRE(Has(message, "no checkpoint in "));
    REQUIRE(Has(message, first + "/partial_pool/pool.jsonl: "));
    REQUIRE(Has(message, second + "/partial_pool/pool.jsonl: "));
    REQUIRE(Has(message, "trainer.resume_mode=disable"));
  }
}

TEST_CASE("A run that would use up the epochs of sample ids is refused", "[resume]") {
  const auto loaded = LoadConfig("", {"data.train_batch_size=4"});
  REQUIRE(loaded.ok());
  // 9 rows are 2 batches of 4 an epoch.
  REQUIRE(CheckEpochs(loaded->config, 2 * 4092, 9).ok());
  const absl::Status status = CheckEpochs(loaded->config, 2 * 4092 + 1, 9);
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(Has(std::string(status.message()), "trainer.total_training_steps at most 8184"));
}

TEST_CASE("other adapters than a checkpoint's are refused before anything starts", "[resume]") {
  ResumePointFolder f;
  f.config = *f.Load({"model.lora.rank=8", "model.lora.adapter_path=/a"});
  f.Save(3);
  const std::vector<std::pair<std::vector<std::string>, std::string>> refused = {
      {{"model.lora.rank=16"}, "model.lora.rank=8, and the run has 16: set it to 8"},
      {{}, "model.lora.rank=8, and the run has 0: set it to 8"},
      {{"model.lora.rank=8", "model.lora.alpha=4"},
       "model.lora.alpha=16, and the run has 4: set it to 16"}};
  for (const auto& [overrides, said] : refused) {
    const auto point = f.Choose(overrides);
    INFO(point.status().ToString());
    REQUIRE(absl::IsInvalidArgument(point.status()));
    REQUIRE(std::string(point.status().message()).find(said) != std::string::npos);
  }
  // A resume does not read the adapters that a run begins with, and says so.
  const auto point = f.Choose({"model.lora.rank=8", "model.lora.adapter_path=/a"});
  REQUIRE(point.ok());
  REQUIRE(point->warnings.empty());
  REQUIRE(
      Has(point->note, "; model.lora.adapter_path is not read: the adapters are those of the "));
  REQUIRE_FALSE(Has(f.Choose({"model.lora.rank=8"})->note, "not read"));
  // A start anew does read them.
  const auto anew =
      f.Choose({"model.lora.rank=8", "model.lora.adapter_path=/a", "trainer.resume_mode=disable"});
  REQUIRE_FALSE(Has(anew->note, "not read"));
}

}  // namespace tandem
