#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>
#include <yaml-cpp/yaml.h>

#include "controller/cli/kubernetes/manifests_command.h"
#include "controller/cli/kubernetes/pod_groups.h"
#include "tests/support/temp_dir.h"
#include "tests/support/text.h"

namespace tandem {
namespace {

using testing::Has;

// A run of the 7B example on GPUs, on two hosts, with everything on claims.
ManifestsOptions SevenB(std::vector<std::string> more = {}) {
  ManifestsOptions options{
      .config = "configs/gsm8k_7b_4x80gb.yaml",
      .overrides = {"trainer.device=cuda", "model.path=/models/qwen",
                    "data.train_files=[/data/t.jsonl]", "data.val_files=[/data/v.jsonl]",
                    "cluster.run_dir=/runs/demo", "trainer.nnodes=2"},
      .image = "registry.example/tandem:1",
      .mounts = {"runs=/runs", "models=/models:ro", "data=/data:ro"},
      .model_dir = "configs/models/qwen2-7b",
      .device_memory = "80GiB",
      .command_line = "tandemctl manifests kubernetes run.yaml"};
  options.overrides.insert(options.overrides.end(), more.begin(), more.end());
  return options;
}

std::vector<std::string> Apart() {
  return {"cluster.hybrid_engine=false", "trainer.nnodes=2",
          "trainer.n_gpus_per_node=2",   "rollout.nnodes=3",
          "rollout.n_gpus_per_node=1",   "cluster.trainers=4",
          "cluster.rollouts=3",          "rollout.free_cache_engine=false"};
}

std::string TextOf(const ManifestsOptions& options) {
  std::ostringstream out;
  FailedAt failed_at = FailedAt::kRun;
  const absl::Status status = KubernetesManifestsCommand(options, &failed_at, out);
  INFO(status.ToString());
  REQUIRE(status.ok());
  return out.str();
}

std::string ErrorOf(const ManifestsOptions& options, int exit_code) {
  std::ostringstream out;
  FailedAt failed_at = FailedAt::kRun;
  const absl::Status status = KubernetesManifestsCommand(options, &failed_at, out);
  INFO(status.ToString());
  REQUIRE_FALSE(status.ok());
  REQUIRE(out.str().empty());
  REQUIRE(ExitCodeAt(failed_at, status) == exit_code);
  return std::string(status.message());
}

// The pod templates by the name of their group.
std::map<std::string, YAML::Node> JobsOf(const ManifestsOptions& options) {
  std::map<std::string, YAML::Node> jobs;
  for (const YAML::Node& document : YAML::LoadAll(TextOf(options))) {
    if (document["kind"].as<std::string>() == "JobSet") {
      for (const YAML::Node& job : document["spec"]["replicatedJobs"])
        jobs[job["name"].as<std::string>()] = job["template"]["spec"];
    } else if (document["kind"].as<std::string>() == "Job") {
      const YAML::Node spec = document["spec"];
      jobs[spec["template"]["metadata"]["labels"]["tandem/group"].as<std::string>()] = spec;
    }
  }
  return jobs;
}

YAML::Node ContainerOf(const YAML::Node& job) { return job["template"]["spec"]["containers"][0]; }

TEST_CASE("a colocated run has a pod for each host, with the agent of both roles",
          "[ctl][kubernetes]") {
  for (const char* format : {"jobset", "jobs"}) {
    ManifestsOptions options = SevenB();
    options.format = format;
    const auto jobs = JobsOf(options);
    REQUIRE(jobs.size() == 2);
    const YAML::Node workers = jobs.at("workers");
    REQUIRE(workers["completions"].as<int>() == 2);
    REQUIRE(workers["parallelism"].as<int>() == 2);
    const YAML::Node container = ContainerOf(workers);
    REQUIRE(container["resources"]["limits"]["nvidia.com/gpu"].as<std::string>() == "2");
    const std::string script = container["command"][2].as<std::string>();
    REQUIRE(Has(script, "exec tandem-agent --controller tandem-controller-0"));
    REQUIRE(Has(script, "--host-index $JOB_COMPLETION_INDEX --hosts 2 "));
  }
}

TEST_CASE("apart, the hosts of rollouts are counted after those of trainers", "[ctl][kubernetes]") {
  const auto jobs = JobsOf(SevenB(Apart()));
  REQUIRE(jobs.size() == 3);
  REQUIRE(jobs.at("trainers")["completions"].as<int>() == 2);
  REQUIRE(jobs.at("rollouts")["completions"].as<int>() == 3);
  REQUIRE(ContainerOf(jobs.at("trainers"))["resources"]["limits"]["nvidia.com/gpu"].as<int>() == 2);
  REQUIRE(ContainerOf(jobs.at("rollouts"))["resources"]["limits"]["nvidia.com/gpu"].as<int>() == 1);
  const std::string script = ContainerOf(jobs.at("rollouts"))["command"][2].as<std::string>();
  REQUIRE(Has(script, "--host-index $((2 + JOB_COMPLETION_INDEX)) --hosts 5 "));
}

TEST_CASE("the controller has the configuration, the overrides and its certificate",
          "[ctl][kubernetes]") {
  const ManifestsOptions options = SevenB();
  const auto documents = YAML::LoadAll(TextOf(options));
  std::stringstream file;
  file << std::ifstream(options.config).rdbuf();
  REQUIRE(documents[0]["data"]["run.yaml"].as<std::string>() == file.str());
  const YAML::Node container = ContainerOf(JobsOf(options).at("controller"));
  const auto command = container["command"].as<std::vector<std::string>>();
  for (const std::string& text : options.overrides)
    REQUIRE(std::count(command.begin(), command.end(), text) >= 1);
  REQUIRE(std::count(command.begin(), command.end(),
                     "trainer.default_local_dir=/runs/demo/checkpoints") == 1);
  REQUIRE(std::count(command.begin(), command.end(),
                     "cluster.tls.cert=/etc/tandem-tls/controller.pem") == 1);
  REQUIRE(command[command.size() - 1] == "0.0.0.0:7001");
}

TEST_CASE("every volume that a container mounts is there, and what is only read is so",
          "[ctl][kubernetes]") {
  for (const auto& [group, job] : JobsOf(SevenB())) {
    const YAML::Node pod = job["template"]["spec"];
    std::map<std::string, YAML::Node> volumes;
    for (const YAML::Node& volume : pod["volumes"])
      volumes[volume["name"].as<std::string>()] = volume;
    REQUIRE(pod["containers"][0]["volumeMounts"].size() == volumes.size());
    for (const YAML::Node& mount : pod["containers"][0]["volumeMounts"]) {
      const YAML::Node volume = volumes.at(mount["name"].as<std::string>());
      const YAML::Node claim = volume["persistentVolumeClaim"];
      if (claim) {
        REQUIRE(claim["readOnly"].IsDefined() == mount["readOnly"].IsDefined());
        REQUIRE(mount["readOnly"].IsDefined() == (mount["mountPath"].as<std::string>() != "/runs"));
      }
    }
    const std::string secret = volumes.at("tls")["secret"]["secretName"].as<std::string>();
    REQUIRE(secret == (group == "controller" ? "tandem-tls-controller" : "tandem-tls-workers"));
  }
}

TEST_CASE("the memory of a pod is the most that its workers hold at once", "[ctl][kubernetes]") {
  MemoryPlan plan{.host_is_device = true};
  plan.phases = {{.phase = "generate",
                  .lines = {{.trainer = true, .bytes = 10}, {.trainer = false, .bytes = 70}}},
                 {.phase = "train",
                  .lines = {{.trainer = true, .bytes = 60}, {.trainer = false, .bytes = 5}}}};
  const Topology topology{.trainers = 4, .rollouts = 4, .trainer_hosts = 2, .rollout_hosts = 2};
  const ThreadsByRole threads{.trainer = 3, .rollout = 5};
  const PodPlan pods = PlanPods(topology, plan, threads);
  REQUIRE(pods.hosts == 2);
  REQUIRE(pods.groups.size() == 1);
  REQUIRE(pods.groups[0].memory_bytes == 2 * (10 + 70) + 4 * kProgramBytes);
  REQUIRE(pods.groups[0].cores == 10);
  REQUIRE(pods.groups[0].gpus == 0);

  Topology apart = topology;
  apart.apart = true;
  const PodPlan separate = PlanPods(apart, plan, threads);
  REQUIRE(separate.hosts == 4);
  REQUIRE(separate.groups[0].memory_bytes == 2 * 60 + 2 * kProgramBytes);
  REQUIRE(separate.groups[1].memory_bytes == 2 * 70 + 2 * kProgramBytes);
  REQUIRE(separate.groups[1].first_host == 2);

  // On a GPU what lies there is no memory of the pod, and what lies in a file is none either.
  plan.host_is_device = false;
  plan.phases[0].lines.push_back({.trainer = true, .location = Location::kHost, .bytes = 8});
  plan.phases[0].lines.push_back({.trainer = true, .location = Location::kFile, .bytes = 900});
  const PodPlan gpus = PlanPods(topology, plan, threads);
  REQUIRE(gpus.groups[0].memory_bytes == 2 * 8 + 4 * kProgramBytes);
  REQUIRE(gpus.groups[0].gpus == 2);
}

TEST_CASE("manifests that could not run are refused by what is wrong", "[ctl][kubernetes]") {
  const auto with = [](auto change) {
    ManifestsOptions options = SevenB();
    change(options);
    return options;
  };
  REQUIRE(Has(ErrorOf(with([](auto& o) { o.name = "My_Run"; }), 64), "--name My_Run"));
  REQUIRE(Has(ErrorOf(with([](auto& o) { o.name = std::string(41, 'a'); }), 64), "at most 40"));
  REQUIRE(Has(ErrorOf(with([](auto& o) { o.name_space = "a.b"; }), 64), "--namespace a.b"));
  REQUIRE(Has(ErrorOf(with([](auto& o) { o.mounts.push_back("x"); }), 64), "CLAIM=/path"));
  REQUIRE(Has(ErrorOf(with([](auto& o) { o.mounts.push_back("other=/runs/"); }), 64), "already"));
  REQUIRE(Has(ErrorOf(with([](auto& o) { o.mounts[0] = "runs=/runs:ro"; }), 64),
              "cluster.run_dir=/runs/demo is written"));
  REQUIRE(Has(ErrorOf(with([](auto& o) { o.mounts.pop_back(); }), 64),
              "data.train_files=/data/t.jsonl is on no --mount"));
  // A relative path starts where the command does.
  REQUIRE(Has(ErrorOf(SevenB({"cluster.run_dir=runs/demo"}), 64), "/runs/demo is on no --mount"));
  REQUIRE(
      Has(ErrorOf(SevenB({"cluster.tls.ca=/x", "cluster.tls.cert=/x", "cluster.tls.key=/x"}), 64),
          "leave the key out"));
  REQUIRE(Has(ErrorOf(with([](auto& o) { o.model_dir.clear(); }), 66), "--model-dir"));
  REQUIRE(Has(ErrorOf(with([](auto& o) { o.device_memory.clear(); }), 64), "--device-memory"));
  REQUIRE(Has(ErrorOf(with([](auto& o) { o.device_memory = "8GiB"; }), 64), "tandemctl plan"));
}

}  // namespace
}  // namespace tandem
