// A resume continues with the inputs that the run was started with, wherever they lie, and refuses
// others by name.
#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "tests/e2e/recovery.h"
#include "tests/support/text.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

// Another answer in the first row, which keeps its length.
void ChangeFirstRow(const fs::path& path) {
  std::string text = FileText(path);
  const size_t digit = text.find_first_of("0123456789");
  REQUIRE(digit != std::string::npos);
  text[digit] = text[digit] == '1' ? '2' : '1';
  std::ofstream(path, std::ios::trunc) << text;
}

TEST_CASE("a resume refuses data and a model that have changed, and accepts moved ones") {
  ClusterRig rig;
  rig.SetPairs(2);
  rig.Set("trainer.save_freq", "1");
  rig.Set("trainer.total_training_steps", "2");
  REQUIRE(rig.Launch().Wait() == 0);
  rig.Set("trainer.total_training_steps", "3");

  const std::string original = FileText(rig.train_file());
  ChangeFirstRow(rig.train_file());
  REQUIRE(rig.Launch({"--grace", "5"}).Wait() == 65);
  std::string said = rig.Log("launcher") + rig.Log("controller");
  INFO(said);
  REQUIRE(Has(said, "was made with other inputs"));
  REQUIRE(Has(said, "data.train_files: " + rig.train_file() + " has another content"));
  REQUIRE(Has(said, "trainer.resume_changed_inputs=accept"));
  REQUIRE(rig.LeftBehind() == "");

  // The dry run says so too, and leaves the checkpoints alone.
  REQUIRE(rig.Launch({"--dry-run"}).Wait() == 65);
  REQUIRE(rig.HasRunFile("checkpoints/step_2/controller_state.json"));

  // The same content elsewhere: the run ends as one that was never interrupted.
  const std::string moved = rig.dir() / "moved.jsonl";
  std::ofstream(moved) << original;
  rig.Set("data.train_files", "[" + moved + "]");
  const int named = Count(rig.Log("launcher"), "data.train_files: ");
  const int code = rig.Launch().Wait();
  said = rig.Log("launcher");
  INFO(said);
  REQUIRE(code == 0);
  REQUIRE(Has(said, "resuming from"));
  REQUIRE(Count(said, "data.train_files: ") == named);  // no change of the run
  const Outcome outcome = OutcomeOf(rig, 3);
  REQUIRE(outcome.weights == Undisturbed().weights);
  REQUIRE(outcome.metrics == Undisturbed().metrics);
}

TEST_CASE("changed data is used where the configuration accepts it") {
  ClusterRig rig;
  rig.SetPairs(2);
  rig.Set("trainer.total_training_steps", "2");
  REQUIRE(rig.Launch().Wait() == 0);
  ChangeFirstRow(rig.train_file());
  rig.Set("trainer.total_training_steps", "3");
  rig.Set("trainer.resume_changed_inputs", "accept");
  const int code = rig.Launch().Wait();
  const std::string said = rig.Log("launcher");
  INFO(said);
  REQUIRE(code == 0);
  REQUIRE(Has(said, "warning: the inputs differ from those of "));
  REQUIRE(std::ssize(rig.Metrics()) == 3);
}

}  // namespace
}  // namespace tandem::testing
