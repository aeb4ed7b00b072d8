#include "trainer_worker/trained_weights/checkpoint.h"

#include <filesystem>

#include "common/formats/hf_checkpoint.h"
#include "tests/trainer_worker/checkpoint_rig.h"

namespace tandem {
namespace {

using namespace tandem::testing;

TEST_CASE("State goes from one rank to two, three and back without a changed bit", "[checkpoint]") {
  CheckpointFixture fixture;
  TrainerRanks one(1, fixture.options);
  fixture.TrainStep(one);
  const std::string first = fixture.Save(one, "a", 1);
  TrainerRanks two(2, fixture.options);
  fixture.Load(two, first, 1);
  RequireSameState(one, two);
  const std::string second = fixture.Save(two, "b", 2);
  TrainerRanks three(3, fixture.options);
  fixture.Load(three, second, 2);
  const std::string third = fixture.Save(three, "c", 3);
  TrainerRanks again(1, fixture.options);
  fixture.Load(again, third, 3);
  RequireSameState(one, again);
}

TEST_CASE("A resumed run goes on with the very bits of an undisturbed one", "[checkpoint]") {
  CheckpointFixture fixture;
  TrainerRanks whole(2, fixture.options);
  fixture.TrainStep(whole);
  const std::string saved = fixture.Save(whole, "a", 1);
  fixture.TrainStep(whole);
  TrainerRanks resumed(2, fixture.options);
  fixture.Load(resumed, saved, 1);
  fixture.TrainStep(resumed);
  RequireSameState(whole, resumed);
}

TEST_CASE("State before the first step is saved without moments and resumes", "[checkpoint]") {
  CheckpointFixture fixture;
  TrainerRanks one(1, fixture.options), two(2, fixture.options);
  const std::string saved = fixture.Save(one, "a", 0);
  fixture.Load(two, saved, 0);
  REQUIRE_FALSE(two[0].session->shard().has_moments());
  fixture.TrainStep(one);
  REQUIRE(one[0].session->shard().has_moments());
}

TEST_CASE("The export of two ranks is a HF checkpoint with the rounded masters", "[checkpoint]") {
  CheckpointFixture fixture;
  TrainerRanks two(2, fixture.options);
  fixture.TrainStep(two);
  const std::string saved = fixture.Save(two, "a", 1);
  const auto spec = LoadModelSpec(saved);
  REQUIRE(spec.ok());
  const auto checkpoint = HfCheckpoint::Open(saved, *spec);
  REQUIRE(checkpoint.ok());
  for (const std::string& name : two.TensorNames()) {
    const std::vector<float> master = two.Master(name);
    const auto view = (*checkpoint)->View(name);
    REQUIRE(view.ok());
    std::vector<Bf16> stored(master.size());
    REQUIRE((*checkpoint)->ReadRows(name, 0, view->shape[0], DType::kBFloat16, stored.data()).ok());
    for (size_t i = 0; i < master.size(); ++i) REQUIRE(stored[i] == ToBf16(master[i]));
  }
  REQUIRE(std::filesystem::exists(saved + "/tokenizer.json"));
}

TEST_CASE("A rank that cannot write fails and tells the others", "[checkpoint]") {
  CheckpointFixture fixture;
  TrainerRanks two(2, fixture.options);
  const std::string good = fixture.Folder("good");
  two.Run([&](Rank& rank, int index) {
    const SaveOptions save{.directory = index == 0 ? good : good + "/missing/folder",
                           .tokenizer_dir = fixture.options.model_dir};
    return SaveRank(rank, save).status();
  });
  REQUIRE(two[1].status.code() == absl::StatusCode::kNotFound);
  REQUIRE(two[0].status.code() == absl::StatusCode::kAborted);
}

TEST_CASE("A failed export on rank 0 does not leave the others waiting", "[checkpoint]") {
  CheckpointFixture fixture;
  TrainerRanks two(2, fixture.options);
  const SaveOptions save{.directory = fixture.Folder("good"),
                         .tokenizer_dir = fixture.Folder("no_tokenizer_here")};
  two.Run([&](Rank& rank, int) { return SaveRank(rank, save).status(); });
  REQUIRE(two[0].status.code() == absl::StatusCode::kNotFound);
  REQUIRE(two[1].status.code() == absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace tandem
