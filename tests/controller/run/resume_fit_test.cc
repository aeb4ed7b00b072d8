// A checkpoint whose groups or adapters do not fit: a dry run and a start give the same message,
// before anything is moved or started.
#include <filesystem>
#include <fstream>
#include <functional>

#include <catch2/catch.hpp>

#include "common/config/loaded_config.h"
#include "common/formats/peft/peft_config.h"
#include "controller/assembly/dry_run.h"
#include "controller/assembly/run_assembly.h"
#include "controller/run/resume_point.h"
#include "controller/store/checkpoint_index.h"
#include "tests/controller/partial_rollout/buffer_run.h"
#include "tests/fakes/fake_run.h"
#include "tests/support/tiny_model.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

using Overrides = std::vector<std::string>;

struct ResumeFitFolder {
  ResumeFitFolder() {
    REQUIRE(testing::WriteTinyModel(base + "/model").ok());
    std::ofstream(base + "/train.jsonl")
        << R"({"prompt": "What is 3 + 4?", "data_source": "tandem/addition",)"
        << R"( "reward_model": {"ground_truth": "7"}})" << std::endl;
  }

  v1::Config Load(const Overrides& more) const {
    Overrides all = {
        "model.path=" + base + "/model",   "data.train_files=" + base + "/train.jsonl",
        "data.train_batch_size=1",         "data.max_prompt_length=64",
        "data.max_response_length=64",     "rollout.gpu_memory_utilization=0.01",
        "trainer.total_training_steps=9",  "trainer.default_local_dir=" + base + "/checkpoints",
        "cluster.run_dir=" + base + "/run"};
    all.insert(all.end(), more.begin(), more.end());
    const auto loaded = LoadConfig("", all);
    INFO(loaded.status().ToString());
    REQUIRE(loaded.ok());
    return loaded->config;
  }

  // Of a run with these settings; `fill` writes what is beside the weights.
  std::string Save(int64_t step,
                   const Overrides& settings,
                   const std::function<void(const std::string& folder)>& fill) const {
    CheckpointIndex index = CheckpointIndex::Open(base + "/checkpoints", 0).value();
    const std::string folder = index.Begin(step).value();
    fill(folder);
    return index.Commit(step, {.step = step, .config_yaml = ConfigToYaml(Load(settings))}).value();
  }

  // What a dry run says, which is what a start does.
  absl::Status Refusal(const Overrides& more) const {
    const v1::Config config = Load(more);
    testing::RecordingProgress progress;
    const absl::Status dry = DryRun(config, progress).status();
    REQUIRE_FALSE(fs::exists(base + "/run"));
    const absl::Status start = Assembly::Create({.config = config}).status();
    fs::remove_all(base + "/run");
    INFO(dry.ToString() << "\n" << start.ToString());
    REQUIRE(dry == start);
    return dry;
  }

  testing::TempDir dir;
  const std::string base = dir.path().string();
};

// A rollout buffer of a run with another tokenizer.
void WritePool(const std::string& folder, int64_t step) {
  const BufferRun run;
  REQUIRE(run.buffer->Add(SomePrompts(0, 2)).ok());
  REQUIRE(run.buffer->Save(folder, step).ok());
}

TEST_CASE("Groups that cannot go on are refused alike by a dry run and a start", "[resume]") {
  const ResumeFitFolder f;
  const Overrides partial = {"rollout.partial.max_tokens_per_round=8"};
  const std::string early = f.Save(3, partial, [](const auto& to) { WritePool(to, 3); });
  const std::string late = f.Save(5, partial, [](const auto& to) { WritePool(to, 5); });
  const absl::Status other = f.Refusal(partial);
  REQUIRE(absl::IsInvalidArgument(other));
  REQUIRE(Says(other, late + "/partial_pool holds 2 groups"));
  REQUIRE(Says(other, "another tokenizer made their tokens"));
  REQUIRE(ExitCodeAt(FailedAt::kInputs, other) == kExitDataError);
  const absl::Status off = f.Refusal({});
  REQUIRE(absl::IsFailedPrecondition(off));
  REQUIRE(Says(off, "partial rollout and trainer.off_policy_steps are off"));
  REQUIRE(ExitCodeAt(FailedAt::kInputs, off) == kExitDataError);
  // Going back to one sets the later ones aside, but not before it fits.
  const Overrides back = {"trainer.resume_mode=resume_path", "trainer.resume_from_path=" + early};
  REQUIRE(absl::IsFailedPrecondition(f.Refusal(back)));
  REQUIRE(fs::exists(late));
  // A damaged one that is named is refused, too.
  fs::resize_file(early + "/partial_pool/pool.jsonl", 30);
  REQUIRE(absl::IsDataLoss(f.Refusal(back)));
  // Who only looks at the weights carries nothing on.
  REQUIRE(f.Refusal({"weight_sync.check_only=true"}).ok());
  REQUIRE(fs::exists(late));
  REQUIRE(f.Refusal({"trainer.resume_mode=disable"}).ok());
}

TEST_CASE("Whether a checkpoint fits is asked with its step, of the one that is chosen",
          "[resume]") {
  const ResumeFitFolder f;
  const auto nothing = [](const std::string&) {};
  const std::string early = f.Save(5, {}, nothing), late = f.Save(7, {}, nothing);
  std::vector<std::string> asked;
  const auto choose = [&](const Overrides& more) {
    CheckpointIndex index = CheckpointIndex::OpenReadOnly(f.base + "/checkpoints");
    const auto fits = [&](const std::string& path, int64_t step) {
      asked.push_back(fmt::format("{} {}", path, step));
      return absl::InvalidArgumentError("not here");
    };
    return ChooseResumePoint(f.Load(more), {.total_steps = 9, .launch_id = "", .fits = fits}, index)
        .status();
  };
  const absl::Status refused = absl::InvalidArgumentError("not here");
  REQUIRE(choose({}) == refused);
  REQUIRE(choose({"trainer.resume_mode=resume_path", "trainer.resume_from_path=" + early}) ==
          refused);
  REQUIRE(choose({"trainer.resume_mode=disable"}).ok());
  REQUIRE(asked == std::vector<std::string>{late + " 7", early + " 5"});
}

TEST_CASE("Other adapters than a checkpoint's are refused alike, with one remedy", "[resume]") {
  const ResumeFitFolder f;
  const Overrides lora = {"model.lora.rank=2", "model.lora.target_modules=[q_proj, v_proj]"};
  const ModelSpec model = LoadModelSpec(f.base + "/model").value();
  const std::string checkpoint = f.Save(3, lora, [&](const std::string& to) {
    const auto spec = MakeLoraSpec(model, LoraOptionsOf(f.Load(lora)));
    REQUIRE(spec.ok());
    fs::create_directories(to + "/lora_adapter");
    std::ofstream(to + "/lora_adapter/adapter_config.json") << PeftConfigJson(*spec, "base");
  });
  REQUIRE(f.Refusal(lora).ok());
  // The same modules by other words.
  REQUIRE(
      f.Refusal({"model.lora.rank=2", "model.lora.target_modules=.*self_attn\\.[qv]_proj"}).ok());
  const auto refused = [&](const Overrides& now, const std::string& said) {
    const absl::Status status = f.Refusal(now);
    REQUIRE(absl::IsInvalidArgument(status));
    REQUIRE(Says(status, "checkpoint " + checkpoint));
    REQUIRE(Says(status, said));
    REQUIRE_FALSE(Says(status, "resume_path"));
    REQUIRE_FALSE(Says(status, "resume_mode"));
  };
  refused({"model.lora.rank=2", "model.lora.target_modules=[q_proj, v_proj, up_proj]"},
          "set model.lora.target_modules=[q_proj, v_proj]");
  refused({"model.lora.rank=2", "model.lora.target_modules=[q_proj]"},
          "set model.lora.target_modules=[q_proj, v_proj]");
  refused({"model.lora.rank=4", lora[1]}, "model.lora.rank=2, and the run has 4: set it to 2");
  refused({lora[0], lora[1], "model.lora.alpha=3"}, "model.lora.alpha=16, and the run has 3");
  refused({}, "model.lora.rank=2, and the run has 0: set it to 2");
}

}  // namespace
}  // namespace tandem
