// tandemctl: shows runs, calls a running controller, and prepares models, data and configurations.
// Exit codes (docs/reference/errors.md): 0 success, 64 wrong usage. Commands that call a
// controller: 1 refused or failed, 69 no controller. Local commands: the code of a run with such
// inputs (common/process/exit_code.h), and 1 if a plan does not fit; parity: tandem-parity's.
#include <functional>
#include <iostream>

#include <CLI/CLI.hpp>
#include <absl/strings/numbers.h>

#include "common/base/build_info.h"
#include "common/base/status.h"
#include "common/process/exit_code.h"
#include "common/process/files/private_files.h"
#include "common/types/sample.h"
#include "controller/cli/api_commands.h"
#include "controller/cli/batch_command.h"
#include "controller/cli/certs/certs_command.h"
#include "controller/cli/kubernetes/manifests_command.h"
#include "controller/cli/local_commands.h"
#include "controller/cli/lora_command.h"
#include "controller/cli/memory_command.h"
#include "controller/cli/reading_commands.h"
#include "controller/cli/report_command.h"
#include "controller/cli/runs/compare_command.h"
#include "controller/cli/runs/ui_command.h"
#include "controller/cli/runs_command.h"
#include "controller/cli/samples_options.h"
#include "controller/cli/verl/from_verl_command.h"

namespace tandem {
namespace {

using Action = std::function<absl::Status()>;
using ApiAction = std::function<absl::Status(ApiCommands&)>;
using ReadingAction = std::function<absl::Status(ReadingCommands&)>;
// Of steps that are listed, unless the user names others.
constexpr int64_t kListedSteps = 20;

// A controller reads 0 steps as "to the configured end"; a user who types 0 may not mean that.
std::string IsStepCount(const std::string& text) {
  int64_t steps = 0;
  if (absl::SimpleAtoi(text, &steps) && steps >= 1) return "";
  return "\"" + text +
         "\" is not a number of steps to train: give 1 or more, or leave it out to train to the "
         "configured end";
}

// The options of all commands; they must outlive parsing.
struct Options {
  int64_t steps = 0;
  bool no_wait = false;
  StepsOptions listed;
  int64_t newest = -1;  // of the steps; -1: not given
  SamplesOptions samples;
  GenerateOptions generate;
  ParityCommandOptions parity;
  WeightsManifestOptions manifest;
  LoraMergeOptions lora;
  LoraInspectOptions inspect;
  AuthorityOptions authority;
  IssueOptions issue;
  PlanOptions plan;
  ManifestsOptions manifests;
  FromVerlOptions from_verl;
  MemoryOptions memory;
  ReportOptions report;
  UiOptions ui;
  CompareOptions compare;
  BatchInspectOptions batch;
  int64_t eval_n = 0, max_prompts = 0;
  double eval_temperature = 1.0;
  std::string hf_checkpoint, gguf, dir, task, format, input, output, key, config;
  AdditionOptions addition;
  std::vector<std::string> overrides;
};

class CommandLine {
 public:
  CommandLine() {
    app_.set_version_flag("--version", BuildText(ThisBuild(), "tandemctl"));
    app_.require_subcommand(1);
    app_.fallthrough();
    app_.add_option("--address", globals_.address, "controller, e.g. unix:/path or 127.0.0.1:7001")
        ->check([](const std::string& address) {
          return address.find(':') == std::string::npos ? "not host:port or unix:/path: " + address
                                                        : std::string();
        });
    app_.add_option("--run-dir", globals_.run_dir, "run directory of the controller");
    app_.add_option("--runs", globals_.runs_root,
                    "folder of run directories, to list, or to find the one whose controller runs")
        ->capture_default_str();
    app_.add_option(
        "--token-file", globals_.security.token_file,
        "the run's token, for a controller on a port of 127.0.0.1 without TLS; default: "
        "token in the run directory");
    app_.add_option("--tls-cert", globals_.security.cert, "PEM certificate for mutual TLS");
    app_.add_option("--tls-key", globals_.security.key, "PEM private key");
    app_.add_option("--tls-ca", globals_.security.ca, "PEM authority of the controller");
    app_.add_flag("--json", globals_.json,
                  "print JSON for machines: runs, status, steps, samples, memory (also of a run "
                  "directory), other answers of a controller, plan, batch, parity, weights, lora");
    AddReading();
    AddDriving();
    AddModelCommands();
    AddLocal();
  }

  int Run(int argc, char** argv) {
    o_.manifests.command_line = "tandemctl";
    for (int i = 1; i < argc; ++i) o_.manifests.command_line += CommandWords("", argv[i]);
    try {
      app_.parse(argc, argv);
    } catch (const CLI::RequiredError& error) {
      // CLI11 only reports that a command is missing; a remaining word is a mistyped command.
      const std::vector<std::string> words = app_.remaining(/*recurse=*/true);
      if (words.empty()) return app_.exit(error) == 0 ? 0 : 64;
      std::cerr << "tandemctl: there is no command \"" << words.front()
                << "\"; tandemctl --help lists all\n";
      return 64;
    } catch (const CLI::ParseError& error) {
      return app_.exit(error) == 0 ? 0 : 64;
    }
    const absl::Status status = action_();
    if (status.ok()) return exit_code_;
    std::cerr << "tandemctl: " << status.message() << "\n";
    if (exit_code_ != 0) return exit_code_;
    // Unix sockets have no TLS.
    if (absl::IsUnavailable(status) && !local_ && !address_.starts_with("unix:") &&
        !globals_.security.enabled()) {
      std::cerr << "tandemctl: a controller with cluster.tls.cert is reached only with --tls-cert, "
                   "--tls-key and --tls-ca\n";
    }
    // NotFound from the controller itself is an answer, not a missing controller.
    const bool unreachable = absl::IsUnavailable(status) || (absl::IsNotFound(status) && !found_);
    if (local_) return ExitCodeAt(failed_at_, status);
    return unreachable ? 69 : 1;
  }

 private:
  CLI::App* Api(CLI::App* parent,
                const std::string& name,
                const std::string& help,
                ApiAction action) {
    CLI::App* command = parent->add_subcommand(name, help);
    command->callback([this, action] {
      action_ = [this, action]() -> absl::Status {
        const auto address = FindController(globals_.address, globals_.run_dir, globals_.runs_root);
        if (!address.ok()) return address.status();
        found_ = true;
        address_ = *address;
        auto api = ConnectTo(*address, globals_, std::cout);
        if (!api.ok()) return api.status();
        return WithWhatIsLeft(action(*api), globals_.run_dir);
      };
    });
    return command;
  }

  CLI::App* Local(CLI::App* parent,
                  const std::string& name,
                  const std::string& help,
                  Action action) {
    CLI::App* command = parent->add_subcommand(name, help);
    command->callback([this, action] {
      local_ = true;
      action_ = action;
    });
    return command;
  }

  // A command that shows a run: asks its controller or, where none answers, reads its directory.
  CLI::App* Reading(const std::string& name, const std::string& help, ReadingAction action) {
    CLI::App* command = app_.add_subcommand(name, help);
    command->callback([this, action] { action_ = [this, action] { return Show(action); }; });
    AddRunDirectory(command);
    return command;
  }

  void AddRunDirectory(CLI::App* command) {
    command->add_option("RUN_DIR", globals_.run_dir,
                        "run directory, also of a run that ended or was killed; as --run-dir");
  }

  // The words by which this command named its run; the directory first, as a list of metrics would
  // take it in.
  std::string RunWords() const {
    const RpcSecurity& security = globals_.security;
    return CommandWords("", globals_.run_dir) + CommandWords("--address", globals_.address) +
           (globals_.runs_root == RunPlace().runs_root
                ? ""
                : CommandWords("--runs", globals_.runs_root)) +
           CommandWords("--token-file", security.token_file) +
           CommandWords("--tls-cert", security.cert) + CommandWords("--tls-key", security.key) +
           CommandWords("--tls-ca", security.ca);
  }

  absl::Status Show(const ReadingAction& action) {
    ShowAttempt attempt;
    const absl::Status shown = ShowRun(globals_, action, std::cout, attempt);
    address_ = attempt.address;
    found_ = attempt.found;
    return shown;
  }

  void AddReading() {
    Reading("status", "phase, step, weight version and workers, or how a run ended",
            [](ReadingCommands& commands) { return commands.ShowStatus(); });
    AddRuns();
    AddSteps();
    AddSamples();
    AddMemory();
    AddReport();
    AddUi();
    AddCompare();
  }

  void AddRuns() {
    CLI::App* runs = Local(&app_, "runs", "every run below a folder: state, steps, reward", [this] {
      return RunsCommand(globals_.runs_root, globals_.json, std::cout);
    });
    runs->add_option("ROOT", globals_.runs_root, "folder of run directories; as --runs");
  }

  void AddSamples() {
    CLI::App* samples =
        Reading("samples", "prompts, responses and rewards of a step",
                [this](ReadingCommands& commands) { return commands.Samples(o_.samples); });
    AddSamplesOptions(samples, o_.samples);
  }

  void AddSteps() {
    CLI::App* steps = Reading("steps", "metrics of finished steps, by default of the newest 20",
                              [this](ReadingCommands& commands) {
                                const bool named =
                                    o_.listed.last_step != 0 || o_.listed.first_step != 1;
                                if (o_.newest < 0) o_.newest = named ? 0 : kListedSteps;
                                o_.listed.newest = o_.newest;
                                o_.listed.run_words = RunWords();
                                return commands.Steps(o_.listed);
                              });
    CLI::Option* const one =
        steps
            ->add_option("--step", o_.listed.step,
                         "this step alone, with its distributions, updates, syncs and load")
            ->check(CLI::PositiveNumber);
    steps->add_option("--last", o_.newest, "the newest so many; 0: all")
        ->check(CLI::NonNegativeNumber)
        ->excludes(one);
    steps->add_option("--from", o_.listed.first_step, "first step")
        ->check(CLI::NonNegativeNumber)
        ->excludes(one)
        ->capture_default_str();
    steps->add_option("--to", o_.listed.last_step, "last step; 0: the newest")
        ->check(CLI::NonNegativeNumber)
        ->excludes(one)
        ->capture_default_str();
    steps
        ->add_option("--metrics", o_.listed.metrics,
                     "names with commas between them: these alone, a column for each")
        ->delimiter(',');
    steps->add_flag("--undone", o_.listed.undone, "steps that recoveries have undone");
  }

  void AddReport() {
    CLI::App* report =
        Local(&app_, "report", "write the report of a run, also of one that was killed", [this] {
          o_.report.run_dir = globals_.run_dir;
          o_.report.json = globals_.json;
          return ReportCommand(o_.report, std::cout);
        });
    AddRunDirectory(report);
    report->add_option("--html", o_.report.html, "file to write; without: RUN_DIR/report.html");
  }

  void AddCompare() {
    CLI::App* compare = Local(
        &app_, "compare", "where two runs part; exits 1 if they do", [this]() -> absl::Status {
          o_.compare.json = globals_.json;
          TANDEM_ASSIGN_OR_RETURN(const bool equal, CompareCommand(o_.compare, std::cout));
          exit_code_ = equal ? 0 : 1;
          return absl::OkStatus();
        });
    compare->add_option("A", o_.compare.a, "run directory")->required();
    compare->add_option("B", o_.compare.b, "another run directory")->required();
    compare->add_option("--at", o_.compare.step, "this step alone; 0: all that both have")
        ->check(IsStep)
        ->capture_default_str();
  }

  void AddUi() {
    CLI::App* ui = Local(&app_, "ui", "show runs in a browser, while they go on and afterwards",
                         [this]() -> absl::Status {
                           if (o_.ui.roots.empty() && !globals_.run_dir.empty()) {
                             o_.ui.roots = {globals_.run_dir};
                           }
                           if (o_.ui.roots.empty()) o_.ui.roots = {globals_.runs_root};
                           return UiCommand(o_.ui, std::cout);
                         });
    ui->add_option("ROOT", o_.ui.roots,
                   "run directories, or folders with some below them; without: that of --runs");
    ui->add_option("--listen", o_.ui.listen,
                   "auto, the first free port from 7460 on, or an address that only this host "
                   "reaches, such as 127.0.0.1:8000")
        ->capture_default_str();
  }

  void AddMemory() {
    CLI::App* memory =
        Reading("memory", "bytes per phase and tag of a step, planned and measured",
                [this](ReadingCommands& commands) { return commands.Memory(o_.memory); });
    memory->add_option("--step", o_.memory.step, "step; 0: the newest finished one")
        ->check(IsStep)
        ->capture_default_str();
    memory->add_option("--html", o_.memory.html, "write a page with the same bars");
  }

  // Must be called after the command's own positional arguments were added.
  static void AddOverrides(CLI::App* command, std::vector<std::string>& overrides) {
    command->add_option("--set,OVERRIDES", overrides,
                        "key=value, over the file; may be repeated. --set itself may be left out");
  }

  void AddPlan() {
    CLI::App* plan =
        Local(&app_, "plan", "memory per phase, before a run; exits 1 if it does not fit",
              [this]() -> absl::Status {
                o_.plan.json = globals_.json;
                const PlanOutcome outcome = PlanCommand(o_.plan, std::cout);
                exit_code_ = outcome.exit_code;
                return outcome.error;
              });
    plan->add_option("CONFIG", o_.plan.config, "YAML file")->required();
    AddOverrides(plan, o_.plan.overrides);
    plan->add_option("--device-memory", o_.plan.device_memory,
                     "of one device: 80GiB, 80GB, 512MiB; without: a share of this host's");
    plan->add_option("--html", o_.plan.html, "write a page with the same bars");
  }

  void AddManifests() {
    CLI::App* manifests =
        app_.add_subcommand("manifests", "write what a cluster starts a run from");
    manifests->require_subcommand(1);
    CLI::App* kubernetes =
        Local(manifests, "kubernetes", "print a run as objects, which have never run on a cluster",
              [this] { return KubernetesManifestsCommand(o_.manifests, &failed_at_, std::cout); });
    ManifestsOptions& options = o_.manifests;
    kubernetes->add_option("CONFIG", options.config, "YAML file")->required();
    AddOverrides(kubernetes, options.overrides);
    options.image = "tandem:" + std::string(ThisBuild().version);
    kubernetes
        ->add_option("--format", options.format,
                     "jobset (needs the JobSet controller) or jobs (Indexed Jobs)")
        ->check(CLI::IsMember({"jobset", "jobs"}))
        ->capture_default_str();
    kubernetes->add_option("--name", options.name, "begins the name of every object")
        ->capture_default_str();
    kubernetes->add_option("--namespace", options.name_space, "of all objects")
        ->capture_default_str();
    kubernetes->add_option("--image", options.image, "with the programs")->capture_default_str();
    kubernetes->add_option("--mount", options.mounts,
                           "CLAIM=/path, or CLAIM=/path:ro: a PersistentVolumeClaim for every pod; "
                           "may be repeated");
    kubernetes->add_option("--model-dir", options.model_dir,
                           "folder with the model's config.json on this machine, if model.path is "
                           "not on it");
    kubernetes->add_option("--device-memory", options.device_memory,
                           "of one GPU of the cluster: 80GiB, 80GB");
  }

  void AddDriving() {
    CLI::App* run = Api(&app_, "run", "train N more steps, then pause",
                        [this](ApiCommands& api) { return api.Run(o_.steps, !o_.no_wait); });
    run->add_option("N", o_.steps, "steps, 1 or more; without: to the configured end")
        ->check(IsStepCount);
    run->add_flag("--no-wait", o_.no_wait, "return at once");
    CLI::App* step = Api(&app_, "step", "train one step, then pause",
                         [this](ApiCommands& api) { return api.Step(!o_.no_wait); });
    step->add_flag("--no-wait", o_.no_wait, "return at once");
    Api(&app_, "pause", "stop after the current step, keep everything running",
        [](ApiCommands& api) { return api.Pause(); });
    Api(&app_, "resume", "go on after a pause", [](ApiCommands& api) { return api.Resume(); });
    Api(&app_, "stop", "save a checkpoint after the current step and end the run",
        [](ApiCommands& api) { return api.Stop(); });
  }

  void AddModelCommands() {
    CLI::App* generate = Api(&app_, "generate", "prompt the current policy",
                             [this](ApiCommands& api) { return api.Generate(o_.generate); });
    generate->add_option("PROMPT", o_.generate.prompt, "one user message")->required();
    generate->add_flag("--raw", o_.generate.raw, "use the text as it is, without chat template");
    generate->add_option("-n", o_.generate.n, "responses")
        ->capture_default_str()
        ->check(CLI::Range(int64_t{1}, kMaxGroupSamples));
    generate->add_option("--temperature", o_.generate.temperature, "0: greedy")
        ->capture_default_str();
    generate->add_option("--max-tokens", o_.generate.max_tokens, "0: data.max_response_length")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    generate->add_option("--seed", o_.generate.seed, "of the sampling")->capture_default_str();
    CLI::App* evaluate =
        Api(&app_, "evaluate", "score the policy on the validation files", [this](ApiCommands& a) {
          return a.Evaluate(o_.eval_n, o_.eval_temperature, o_.max_prompts);
        });
    CLI::Option* n =
        evaluate->add_option("-n", o_.eval_n, "responses per prompt; 0: rollout.val_kwargs")
            ->capture_default_str()
            ->check(CLI::Range(int64_t{0}, kMaxGroupSamples));
    evaluate->add_option("--temperature", o_.eval_temperature, "with -n only; 0: greedy")
        ->capture_default_str()
        ->needs(n);
    evaluate->add_option("--max-prompts", o_.max_prompts, "0: all")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    CLI::App* check = Api(&app_, "check",
                          "compare the weights of rollouts and trainers; a difference ends the run",
                          [this](ApiCommands& api) { return api.Check(o_.hf_checkpoint); });
    check->add_option("--hf", o_.hf_checkpoint,
                      "compare with this HF checkpoint instead; a difference is only reported");
  }

  void AddLocal() {
    CLI::App* import = app_.add_subcommand("import", "make an HF checkpoint directory");
    import->require_subcommand(1);
    CLI::App* gguf = Local(import, "gguf", "from a GGUF file",
                           [this] { return ImportGgufCommand(o_.gguf, o_.dir, std::cout); });
    gguf->add_option("MODEL", o_.gguf, "GGUF file")->required();
    gguf->add_option("DIR", o_.dir, "directory to write")->required();

    CLI::App* data = app_.add_subcommand("data", "make or convert training data");
    data->require_subcommand(1);
    CLI::App* make = Local(data, "make", "write a built-in verifiable task", [this] {
      return MakeDataCommand(o_.task, o_.dir, o_.addition, std::cout);
    });
    make->add_option("TASK", o_.task, "addition")->required()->check(CLI::IsMember({"addition"}));
    make->add_option("DIR", o_.dir, "directory for train.jsonl and val.jsonl")->required();
    make->add_option("--max", o_.addition.max_operand, "largest operand")->capture_default_str();
    make->add_option("--holdout", o_.addition.holdout, "share of pairs kept out of training")
        ->capture_default_str();
    make->add_option("--seed", o_.addition.seed, "which pairs")->capture_default_str();
    CLI::App* convert = Local(data, "convert", "bring a file into verl's columns", [this] {
      return ConvertDataCommand(o_.format, o_.input, o_.output, std::cout);
    });
    convert->add_option("FORMAT", o_.format, "gsm8k or math")
        ->required()
        ->check(CLI::IsMember({"gsm8k", "math"}));
    convert->add_option("INPUT", o_.input, "file, or folder of files, to read")->required();
    convert->add_option("OUTPUT", o_.output, "JSONL file to write")->required();
    AddPlan();
    AddManifests();
    AddBatch();
    AddParity();
    AddWeights();
    AddLora();
    AddCerts();
    AddConfig();
  }

  void AddBatch() {
    CLI::App* batch = app_.add_subcommand("batch", "look at batches that a run has saved");
    batch->require_subcommand(1);
    CLI::App* inspect = Local(
        batch, "inspect", "shapes, lengths, masks, ranges of every field, groups, the worst ratio",
        [this]() -> absl::Status {
          o_.batch.json = globals_.json;
          const BatchInspectOutcome outcome = BatchInspectCommand(o_.batch, std::cout);
          exit_code_ = outcome.exit_code;
          return outcome.error;
        });
    inspect
        ->add_option("FILE", o_.batch.file,
                     "RUN_DIR/batches/step_N.batch (trainer.save_batch_freq) or "
                     "RUN_DIR/failed_steps/step_N/step.batch")
        ->required();
    inspect->add_option("--tokenizer", o_.batch.tokenizer,
                        "model directory or tokenizer.json, for texts; without: the batch's model");
  }

  void AddParity() {
    CLI::App* parity = Local(
        &app_, "parity", "compare the log-probs of rollout and trainer on a checkpoint", [this] {
          o_.parity.json = globals_.json;
          return ParityCommand(o_.parity);
        });
    ParityCommandOptions& o = o_.parity;
    parity->add_option("--model", o.model_dir, "HF checkpoint directory")->required();
    parity->add_option("--tokens", o.tokens, "response tokens to compare, at least")
        ->capture_default_str();
    parity->add_option("--response-length", o.response_length, "tokens per response")
        ->capture_default_str();
    parity->add_option("--max-num-seqs", o.max_num_seqs, "sequences decoded together")
        ->capture_default_str();
    parity->add_option("--threads", o.threads, "compute threads; 0: all cores")
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
    parity->add_option("--seed", o.seed, "of the sampling")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
  }

  void AddWeights() {
    CLI::App* weights = app_.add_subcommand("weights", "what a weight sync carries");
    weights->require_subcommand(1);
    CLI::App* manifest = Local(
        weights, "manifest", "every tensor of a model and its place in a rollout's memory", [this] {
          o_.manifest.json = globals_.json;
          return WeightsManifestCommand(o_.manifest, std::cout);
        });
    manifest->add_option("MODEL_DIR", o_.manifest.model_dir, "HF checkpoint; config.json is enough")
        ->required();
    manifest->add_option("--dtype", o_.manifest.dtype, "bfloat16 or float32 (model.compute_dtype)")
        ->check(CLI::IsMember({"bfloat16", "float32"}))
        ->capture_default_str();
  }

  void AddLora() {
    CLI::App* lora = app_.add_subcommand("lora", "adapters as PEFT writes them");
    lora->require_subcommand(1);
    LoraMergeOptions& o = o_.lora;
    CLI::App* merge = Local(lora, "merge", "write a base with an adapter merged into it",
                            [&o] { return LoraMergeCommand(o, std::cout); });
    AddMergeOptions(*merge, o);
    CLI::App* inspect = Local(lora, "inspect", "rank, alpha, targets and bytes", [this] {
      o_.inspect.json = globals_.json;
      return LoraInspectCommand(o_.inspect, std::cout);
    });
    inspect->add_option("ADAPTER", o_.inspect.adapter, "adapter directory")->required();
    inspect->add_option("--base", o_.inspect.base,
                        "compare names and shapes with this HF checkpoint; config.json is enough");
  }

  void AddCerts() {
    CLI::App* certs = app_.add_subcommand("certs", "make certificates for mutual TLS");
    certs->require_subcommand(1);
    CLI::App* init = Local(certs, "init", "an authority, in a folder for its certificates", [this] {
      failed_at_ = FailedAt::kConfig;
      return CertsInitCommand(o_.authority, std::cout);
    });
    AddCertsInitOptions(*init, o_.authority);
    CLI::App* issue = Local(certs, "issue", "a certificate of a role, and its key", [this] {
      failed_at_ = FailedAt::kConfig;
      return CertsIssueCommand(o_.issue, std::cout);
    });
    AddCertsIssueOptions(*issue, o_.issue);
  }

  void AddConfig() {
    CLI::App* config = app_.add_subcommand("config", "explain and check configurations");
    config->require_subcommand(1);
    CLI::App* explain = Local(config, "explain", "type, default and meaning of a key", [this] {
      failed_at_ = FailedAt::kConfig;
      return ConfigExplainCommand(o_.key, std::cout);
    });
    explain->add_option("KEY", o_.key, "dotted key; none: the sections");
    Local(config, "markdown", "docs/reference/config.md",
          [] { return ConfigMarkdownCommand(std::cout); });
    AddFromVerl(config);
    CLI::App* check = Local(
        config, "check", "validate a file and print what it resolves to",
        [this] { return ConfigCheckCommand(o_.config, o_.overrides, &failed_at_, std::cout); });
    check->add_option("FILE", o_.config, "YAML file")->required();
    AddOverrides(check, o_.overrides);
  }

  void AddFromVerl(CLI::App* config) {
    CLI::App* from_verl =
        Local(config, "from-verl", "a verl script, which is not run, as a configuration", [this] {
          failed_at_ = FailedAt::kConfig;
          return FromVerlCommand(o_.from_verl, std::cin, std::cout);
        });
    from_verl->add_option("SCRIPT", o_.from_verl.script,
                          "a script that starts verl.trainer.main_ppo; none or -: a script or its "
                          "overrides, from standard input");
    from_verl->add_option("ARGUMENTS", o_.from_verl.arguments,
                          "of the script: further overrides, where it passes on \"$@\"");
    from_verl->add_option("-o,--output", o_.from_verl.output, "YAML file; none: standard output");
  }

  CLI::App app_{"Show Tandem runs, drive a running controller; prepare models, data and configs."};
  RunPlace globals_;
  Options o_;
  Action action_;
  bool local_ = false;                      // the command needs no controller
  std::string address_;                     // that was called; empty: none was
  bool found_ = false;                      // a controller's address or a run's files were found
  int exit_code_ = 0;                       // of a plan or a batch; 0: derived from the status
  FailedAt failed_at_ = FailedAt::kInputs;  // for a local command
};

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::KeepOthersFromWriting();
  return tandem::CommandLine().Run(argc, argv);
}
