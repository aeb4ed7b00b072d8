#include "common/http/target.h"

#include <string>

#include <catch2/catch.hpp>

namespace tandem {

TEST_CASE("A target is decoded into its path and its parameters", "[http]") {
  const auto target = ParseHttpTarget("/api/v1/a%20b?name=x%26y&name=z+1&empty&=w#part");
  REQUIRE(target.ok());
  REQUIRE(target->path == "/api/v1/a b");
  REQUIRE(target->query == std::multimap<std::string, std::string>{
                               {"name", "x&y"}, {"name", "z 1"}, {"empty", ""}, {"", "w"}});
  REQUIRE(ParseHttpTarget("/")->path == "/");
  REQUIRE(ParseHttpTarget("/a+b")->path == "/a+b");  // a plus is a space in a query alone
}

TEST_CASE("A target that could mean something else is refused", "[http]") {
  for (const char* target : {"", "a", "*", "http://host/", "/%", "/%4", "/%zz", "/%00", "/?a=%00",
                             "/a/../b", "/./a", "/a/%2e%2e", "/.."}) {
    INFO(target);
    REQUIRE(absl::IsInvalidArgument(ParseHttpTarget(target).status()));
  }
  std::string many = "/?";
  for (int i = 0; i < 65; ++i) many += "a=1&";
  REQUIRE(absl::IsInvalidArgument(ParseHttpTarget(many).status()));
}

}  // namespace tandem
