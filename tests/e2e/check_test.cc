// The weight check with real processes: alone, in a run, and as a user asks for it; with memory
// kept between phases and with memory released.
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

// Everything a run leaves but what processes need while they are there, and the report of a check.
std::map<std::string, std::string> Left(const ClusterRig& rig) {
  std::map<std::string, std::string> left;
  for (const auto& entry : fs::recursive_directory_iterator(rig.run_dir())) {
    const std::string name = fs::relative(entry.path(), rig.run_dir()).string();
    const bool passing = name.starts_with("logs") || name.ends_with(".lock") ||
                         name == "generation" || name == "pids.json" || name == "weight_check.json";
    if (entry.is_regular_file() && !passing) left[name] = FileText(entry.path());
  }
  return left;
}

nlohmann::json ReportOf(const ClusterRig& rig) {
  return nlohmann::json::parse(FileText(rig.run_dir() + "/weight_check.json"));
}

struct Ended {
  int code = 0;
  std::string said;
};

Ended CheckOnly(ClusterRig& rig) {
  TestProcess& launcher = rig.Launch({"--set", "weight_sync.check_only=true"});
  const int code = launcher.Wait();
  REQUIRE(rig.LeftBehind() == "");
  return {code, rig.Log("launcher")};
}

// Flips a bit of an exponent in the middle of a file of a checkpoint's HF export, whose size stays.
void DamageExport(const fs::path& checkpoint, const std::string& name = "model.safetensors") {
  fs::path file;
  for (const auto& entry : fs::recursive_directory_iterator(checkpoint)) {
    if (entry.path().filename() == name) file = entry.path();
  }
  REQUIRE_FALSE(file.empty());
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  const auto size = static_cast<std::streamoff>(fs::file_size(file));
  const std::streamoff middle = size - 1 - size / 2 / 4 * 4;  // the last byte of an element
  stream.seekg(middle);
  const int byte = stream.get();
  stream.seekp(middle);
  stream.put(static_cast<char>(byte ^ 0x40));
  REQUIRE(stream.good());
}

TEST_CASE("W1: a check alone proves the start, leaves nothing, and tells which transport it took") {
  for (const char* free_cache_engine : {"true", "false"}) {
    ClusterRig rig({.config = {{"rollout.free_cache_engine", free_cache_engine},
                               {"weight_sync.scramble", "always"}}});
    rig.SetPairs(2);
    const Ended ended = CheckOnly(rig);
    INFO(ended.said << rig.Log("controller"));
    REQUIRE(ended.code == 0);
    REQUIRE(Has(ended.said, "weight check of version 0 against " + rig.model_dir()));
    // 2 layers of 9 tensors, the embedding with the tied head, the final norm.
    for (const char* rank : {"0", "1"}) {
      REQUIRE(Has(ended.said, std::string("rollout ") + rank +
                                  ", version 0: 20 of 20 tensors checked, 0 missing, 0 unexpected, "
                                  "0 mismatched"));
    }
    REQUIRE(Has(ended.said, "weights agree"));
    // The check follows the sync, which makes none of its own.
    REQUIRE_FALSE(Has(ended.said, "tensors equal"));
    REQUIRE(Left(rig).empty());
    const auto report = ReportOf(rig);
    REQUIRE(report.at("ok") == true);
    REQUIRE(report.at("oracle") == rig.model_dir());
    REQUIRE(report.at("workers").size() == 2);
    REQUIRE(report.at("workers")[1].at("checked") == 20);
    for (const char* role : {"trainer", "rollout"}) {
      REQUIRE(Count(rig.Log(role, 1),
                    "weight transport: shm (a memfd over the pair's socket), "
                    "chosen because the device is a CPU") == 1);
    }
  }
}

TEST_CASE("W1: a check alone leaves a finished run as it is, and finds one bit on its disk") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "2"},
                             {"weight_sync.transport", "shm"},
                             {"weight_sync.check", "every 2"}}});
  REQUIRE(rig.Launch().Wait() == 0);
  REQUIRE(Has(rig.Log("trainer"), "as weight_sync.transport says"));
  // Version 0, and version 2; not version 1.
  REQUIRE(Count(rig.Log("launcher"), "weight check: 20 tensors equal") == 2);
  // What a run that was killed over a checkpoint leaves: the next run's to tidy, not a check's.
  fs::create_directories(rig.run_dir() + "/checkpoints/step_3.tmp");
  std::ofstream(rig.run_dir() + "/checkpoints/step_3.tmp/part") << "half";
  const auto before = Left(rig);
  REQUIRE(before.contains("run.db"));
  REQUIRE(before.contains("checkpoints/step_3.tmp/part"));

  // Another learning rate matters to nobody who only looks.
  rig.Set("actor.optim.lr", "0.5");
  Ended ended = CheckOnly(rig);
  INFO(ended.said);
  REQUIRE(ended.code == 0);
  REQUIRE(Has(ended.said, "looking at " + rig.run_dir()));
  REQUIRE_FALSE(Has(ended.said, "continues"));
  REQUIRE_FALSE(Has(ended.said, "resuming"));
  REQUIRE(Has(ended.said, "weight check of version 2 against " + rig.run_dir()));
  REQUIRE(Left(rig) == before);

  DamageExport(rig.run_dir() + "/checkpoints/step_2");
  const auto damaged = Left(rig);
  ended = CheckOnly(rig);
  REQUIRE(ended.code == 70);
  REQUIRE(Has(ended.said,
              "rollout 0, version 2: 20 of 20 tensors checked, 0 missing, 0 "
              "unexpected, 1 mismatched; first: model."));
  REQUIRE(Has(ended.said, "]: the rollout holds "));
  REQUIRE(Has(ended.said, "  differs: model."));
  REQUIRE(Has(ended.said + rig.Log("controller"), "rollout 0 does not hold the weights it should"));
  REQUIRE(Left(rig) == damaged);
  const auto report = ReportOf(rig);
  REQUIRE(report.at("ok") == false);
  REQUIRE(report.at("version") == 2);
  REQUIRE(report.at("workers")[0].at("mismatched") == 1);
  REQUIRE(report.at("workers")[0].at("differing").size() == 1);

  rig.Set("weight_sync.check", "\"off\"");
  REQUIRE(CheckOnly(rig).code == 64);
}

TEST_CASE("under LoRA a check alone reads the checkpoint that it names, and finds one bit in it") {
  const std::map<std::string, std::string> lora = {{"model.lora.rank", "4"},
                                                   {"model.lora.alpha", "8"},
                                                   {"actor.optim.lr", "0.01"},
                                                   {"trainer.total_training_steps", "2"}};
  for (const bool merge : {true, false}) {
    RigOptions options{.config = lora};
    options.config["model.lora.merge"] = merge ? "true" : "false";
    ClusterRig rig(options);
    REQUIRE(rig.Launch().Wait() == 0);
    const std::string step = rig.run_dir() + "/checkpoints/step_2";
    const std::string adapter = step + "/lora_adapter";
    const std::string oracle = merge ? step : rig.model_dir() + " with the adapter of " + adapter;
    Ended ended = CheckOnly(rig);
    INFO(ended.said);
    REQUIRE(ended.code == 0);
    REQUIRE(Has(ended.said, "weight check of version 2 against " + oracle));
    REQUIRE(ReportOf(rig).at("oracle") == oracle);
    DamageExport(step, merge ? "model.safetensors" : "adapter_model.safetensors");
    ended = CheckOnly(rig);
    REQUIRE(ended.code == 70);
    REQUIRE(Has(ended.said, "unexpected, 1 mismatched; first: model."));
    REQUIRE(Has(ended.said + rig.Log("controller"), "compared with " + oracle + ")"));
    REQUIRE(ReportOf(rig).at("ok") == false);
  }
}

TEST_CASE("under LoRA a directory that is not there, or is another model, is no proof") {
  ClusterRig rig({.config = {{"model.lora.rank", "4"},
                             {"model.lora.alpha", "8"},
                             {"trainer.total_training_steps", "9"}}});
  REQUIRE(WriteTinyModel(rig.dir() / "other", {.seed = 2}).ok());
  TestProcess& launcher = rig.Launch({"--start-paused"});
  rig.WaitForStatus("the run to wait", [](const auto& s) { return s.state() == "paused"; });
  const auto absent = rig.Ctl({"check", "--hf", "/nope/does/not/exist"});
  INFO(absent.output);
  REQUIRE(absent.code != 0);
  REQUIRE(Has(absent.output, "/nope/does/not/exist: there is no such directory"));
  // Nothing was proven wrong: the run lives on. B is zero, so that the base is what is served.
  REQUIRE(rig.Ctl({"check", "--hf", rig.model_dir()}).code == 0);
  const auto other = rig.Ctl({"check", "--hf", rig.dir() / "other"});
  REQUIRE(other.code == 1);
  REQUIRE(Has(other.output, "WEIGHTS DIFFER"));
  // Other weights than a file's say nothing against the run: it lives on.
  REQUIRE(rig.Ctl({"check"}).code == 0);
  REQUIRE(rig.Ctl({"stop"}).code == 0);
  REQUIRE(launcher.Wait() == 0);
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("A check that a user asks for tells of every rollout, and against files ends no run") {
  for (const char* free_cache_engine : {"true", "false"}) {
    // The checkpoint is in fp32; it is compared as the rollouts hold it, rounded to bf16.
    ClusterRig rig({.model = {.float32 = true},
                    .config = {{"trainer.total_training_steps", "9"},
                               {"rollout.free_cache_engine", free_cache_engine}}});
    rig.SetPairs(2);
    TestProcess& launcher = rig.Launch({"--start-paused"});
    rig.WaitForStatus("the run to wait", [](const auto& s) { return s.state() == "paused"; });
    REQUIRE(rig.Ctl({"check", "--hf", rig.model_dir()}).code == 0);
    REQUIRE(rig.Ctl({"step"}).code == 0);
    const auto good = rig.Ctl({"check", "--json"});
    REQUIRE(good.code == 0);
    const auto report = nlohmann::json::parse(good.output);
    REQUIRE(report.at("ok") == true);
    REQUIRE(report.at("workers").size() == 2);
    REQUIRE(report.at("workers")[1].at("version") == "1");
    REQUIRE(report.at("workers")[1].at("checked") == "20");
    REQUIRE(report.at("workers")[1].at("expected") == "20");

    // A step away from the model that it began with.
    const auto bad = rig.Ctl({"check", "--hf", rig.model_dir()});
    INFO(bad.output << rig.Log("launcher"));
    REQUIRE(bad.code == 1);
    REQUIRE(Has(bad.output, "WEIGHTS DIFFER"));
    REQUIRE(Has(bad.output, "  differs: model."));
    REQUIRE(Has(bad.output, "]: the rollout holds "));
    REQUIRE(rig.Ctl({"check"}).code == 0);
    REQUIRE(rig.Ctl({"stop"}).code == 0);
    REQUIRE(launcher.Wait() == 0);
    REQUIRE(rig.LeftBehind() == "");
    REQUIRE(rig.HasRunFile("checkpoints/latest"));
  }
}

TEST_CASE(
    "A check against another model's file names every tensor, and one of another shape none") {
  ClusterRig rig({.config = {{"trainer.total_training_steps", "9"}}});
  rig.SetPairs(2);
  REQUIRE(WriteTinyModel(rig.dir() / "wide", {.hidden_size = 128}).ok());
  REQUIRE(WriteTinyModel(rig.dir() / "other", {.seed = 2}).ok());
  TestProcess& launcher = rig.Launch({"--start-paused"});
  rig.WaitForStatus("the run to wait", [](const auto& s) { return s.state() == "paused"; });
  // Nothing can be compared, so nothing is proven wrong: the run lives on.
  const auto wide = rig.Ctl({"check", "--hf", rig.dir() / "wide"});
  INFO(wide.output);
  REQUIRE(wide.code == 1);
  REQUIRE(rig.Ctl({"check"}).code == 0);

  const auto other = rig.Ctl({"check", "--hf", rig.dir() / "other"});
  INFO(other.output);
  REQUIRE(other.code == 1);
  REQUIRE(Has(other.output, "WEIGHTS DIFFER"));
  // The norms of a new model are ones, whatever its seed.
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
        "model.layers.1.self_attn.k_proj.weight", "model.layers.1.self_attn.v_proj.weight",
        "model.layers.0.mlp.gate_proj.weight", "model.layers.1.mlp.down_proj.weight"}) {
    REQUIRE(Count(other.output, std::string("differs: ") + name) == 2);
  }
  // Other weights than a file's say nothing against the run: it lives on.
  REQUIRE(rig.Ctl({"check"}).code == 0);
  REQUIRE(rig.Ctl({"stop"}).code == 0);
  REQUIRE(launcher.Wait() == 0);
  REQUIRE(rig.LeftBehind() == "");
}

TEST_CASE("tandemctl prints the manifest of a model") {
  ClusterRig rig;
  const auto text = rig.Ctl({"weights", "manifest", rig.model_dir()});
  REQUIRE(text.code == 0);
  REQUIRE(Has(text.output, "model.layers.1.self_attn.v_proj.weight"));
  REQUIRE(Has(text.output, "lm_head.weight is tied to model.embed_tokens.weight"));
  REQUIRE(Has(text.output, "20 tensors, "));
  const auto manifest = nlohmann::json::parse(
      rig.Ctl({"weights", "manifest", rig.model_dir(), "--dtype", "float32", "--json"}).output);
  REQUIRE(manifest.at("tensors").size() == 20);
  REQUIRE(manifest.at("total").at("tensors") == 20);
  int64_t bytes = 0;
  for (const auto& tensor : manifest.at("tensors")) {
    REQUIRE(tensor.at("dtype") == "F32");
    bytes += tensor.at("bytes").get<int64_t>();
    // k lies below q in one packed tensor.
    if (tensor.at("name") != "model.layers.0.self_attn.k_proj.weight") continue;
    REQUIRE(tensor.at("stored_in") == "qkv");
    REQUIRE(tensor.at("row") == 64);
    REQUIRE(tensor.at("packed") == true);
  }
  REQUIRE(manifest.at("total").at("bytes") == bytes);
  REQUIRE(rig.Ctl({"weights", "manifest", "/no/such/model"}).code == 66);
  REQUIRE(rig.Ctl({"weights", "manifest", rig.model_dir(), "--dtype", "int8"}).code == 64);
}

}  // namespace
}  // namespace tandem::testing
