// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a user names as a file is read, or refused with the reason, and never waited for.
#include <collx/core/regular_file.hpp>

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include <catch2/catch.hpp>

using collx::detail::read_regular_file;

namespace {

struct folder {
    std::string path = "/tmp/collx_regular_file-XXXXXX";
    folder() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
    folder(const folder&) = delete;
    ~folder() {
        for (const char* name : {"/file", "/fifo", "/link"}) ::unlink((path + name).c_str());
        ::rmdir(path.c_str());
    }
    std::string operator/(const char* name) const { return path + "/" + name; }
};
// Why it cannot be read, or an empty text.
std::string reason_for(const std::string& name) {
    std::string text;
    const char* why = read_regular_file(name.c_str(), 100, text);
    return why != nullptr ? why : "";
}

} // namespace

TEST_CASE("a file is read up to the limit") {
    const folder here;
    const std::string name = here / "file", whole(100'000, 'x');
    std::ofstream(name) << whole;
    std::string text = "of before";
    CHECK(read_regular_file(name.c_str(), SIZE_MAX, text) == nullptr);
    CHECK(text == whole);
    CHECK(read_regular_file(name.c_str(), 99'999, text) == nullptr);
    CHECK(text.size() == 99'999);
    std::ofstream(name).flush();
    CHECK(read_regular_file(name.c_str(), 10, text) == nullptr);
    CHECK(text.empty());
}

TEST_CASE("what is no file is refused at once") {
    const folder here;
    REQUIRE(::mkfifo((here / "fifo").c_str(), 0600) == 0);
    REQUIRE(::symlink("nothing", (here / "link").c_str()) == 0);
    CHECK(reason_for(here / "fifo") == "Not a regular file");
    CHECK(reason_for("/dev/null") == "Not a regular file");
    CHECK(reason_for(here.path) == "Is a directory");
    CHECK(reason_for(here / "link") == "No such file or directory");
    CHECK(reason_for("") == "No such file or directory");
}
