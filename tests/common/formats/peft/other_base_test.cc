#include <catch2/catch.hpp>

#include "common/formats/peft/peft_config.h"

namespace tandem {
namespace {

std::string Said(const std::string& named, const std::string& base) {
  return OtherBase({.lora = {}, .base_model = named}, "runs/a", base);
}

TEST_CASE("the base that an adapter names is compared by its last part", "[lora]") {
  REQUIRE(Said("", "/models/small") == "");
  REQUIRE(Said("org/small", "/models/small/") == "");
  REQUIRE(Said("/theirs/small", "small") == "");
  REQUIRE(Said("someone/other", "/models/small") ==
          "runs/a names someone/other as its base, and this is /models/small: only names and "
          "shapes are compared");
}

TEST_CASE("a path in Hugging Face's cache has the name of its model", "[lora]") {
  const std::string cached = "/c/hub/models--org--small/snapshots/12fd25f77366fa6b";
  REQUIRE(BaseName(cached) == "small");
  REQUIRE(BaseName(cached + "/") == "small");
  REQUIRE(BaseName("/hub/models--gpt2/snapshots/1a") == "gpt2");
  // A name may have two dashes itself.
  REQUIRE(BaseName("/hub/models--org--a--b/snapshots/1a") == "a--b");
  REQUIRE(BaseName("/runs/snapshots/1a") == "1a");
  REQUIRE(Said("org/small", cached) == "");
  REQUIRE(Said(cached, "/models/small") == "");
  REQUIRE_FALSE(Said("org/other", cached).empty());
}

}  // namespace
}  // namespace tandem
