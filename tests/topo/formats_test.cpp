// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files and texts that describe machines: NCCL's topology and graph files, the matrix of nvidia-smi. Machines that
// are written and read again are equal; errors are refused with the line and a remedy.
#include <collx/topo/machines.hpp>
#include <collx/topo/nccl_graph.hpp>
#include <collx/topo/nccl_topology.hpp>
#include <collx/topo/nccl_topology_writer.hpp>
#include <collx/topo/smi_matrix.hpp>

#include <catch2/catch.hpp>

#include <algorithm>

using namespace collx;
using namespace collx::topo;
using Catch::Contains;

namespace {

// Two of the GPUs of a DGX-1V and a VM's second node, as in a dump.
const char* const dump = R"(<system version="1">
  <!-- half of a machine -->
  <cpu numaid="0" affinity="00000fff,ff00000f" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="79">
    <pci busid="0000:05:00.0" class="0x060400" vendor="0x10b5" link_speed="8 GT/s" link_width="16">
      <pci busid="0000:06:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="70" rank="0" gdr="1">
          <nvlink target="0000:07:00.0" count="2" tclass="0x030200"/>
        </gpu>
      </pci>
      <pci busid="0000:07:00.0" class="0x030200" link_speed="" link_width="0">
        <gpu dev="1" sm="70" rank="1"><nvlink target="0000:06:00.0" count="2" tclass="0x030200"/></gpu>
      </pci>
      <pci busid="0000:08:00.0" class="0x020700" link_speed="8.0 GT/s PCIe" link_width="8">
        <nic><net name="mlx5_0" dev="0" speed="100000" port="1" guid="0x5" maxconn="131072" unheard="of"/></nic>
      </pci>
    </pci>
  </cpu>
  <cpu numaid="1" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="79"/>
</system>
)";

// The dump with one text replaced.
std::string changed(const std::string& from, const std::string& to) {
    std::string text = dump;
    text.replace(text.find(from), from.size(), to);
    return text;
}
std::string what_of(const std::string& text) {
    try {
        (void)read_nccl_topology(text, "node.xml");
    } catch (const invalid_argument& e) {
        return e.what();
    }
    return "accepted";
}

} // namespace

TEST_CASE("a topology dump becomes a machine") {
    const graph g = read_nccl_topology(dump, "node.xml", rate_basis::nccl);
    REQUIRE(g.size() == 6);
    const path nvlink = find_path(g, g.require("GPU0"), g.require("GPU1"));
    CHECK(nvlink.type == path_class::nvl);
    CHECK(nvlink.bytes_per_s == 40e9); // listed by both ends, but one link
    const path card = find_path(g, g.require("GPU0"), g.require("mlx5_0"));
    CHECK(card.type == path_class::pix);
    CHECK(card.bytes_per_s == 6e9);
    CHECK(g.at(g.require("mlx5_0")).port_bytes_per_s == 12.5e9);
    CHECK(find_path(g, g.require("CPU0"), g.require("CPU1")).bytes_per_s == 6e9);
    // A VM: nodes with equal numbers, no affinity, an XML declaration.
    const graph vm =
        read_nccl_topology("<?xml version='1.0'?><system version=\"1\"><cpu numaid=\"-1\" arch=\"x86_64\"/>"
                           "<cpu numaid=\"-1\" arch=\"x86_64\"/></system>");
    CHECK(vm.size() == 2);
}

TEST_CASE(
    "files as others write them: marks of UTF-8, numbers of characters, bus ids in capitals, cards not for messages") {
    const xml_element e = read_xml("\xef\xbb\xbf<a b=\"x&#10;y&#x41;&#xe9;&#x20ac;&#128512;\"/>");
    CHECK(*e.find("b") == "x\nyA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    for (const char* wrong : {"<a b=\"&#;\"/>", "<a b=\"&#x;\"/>", "<a b=\"&#0;\"/>", "<a b=\"&#12\"/>",
                              "<a b=\"&#xg;\"/>", "<a b=\"&#1114112;\"/>", "<a b=\"&#"})
        CHECK_THROWS_WITH(read_xml(wrong), Catch::Contains("character"));
    const graph g = read_nccl_topology(
        R"(<system version="1"><cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="175" modelid="17">
<pci busid="0000:0a:00.0" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="100" rank="0"/>
<gpu dev="1" sm="100" rank="1"><nvlink target="0000:0B:00.0" count="2" tclass="0x030200"/></gpu></pci>
<pci busid="0000:0b:00.0" link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="2" sm="100" rank="2"/></pci>
<pci busid="0000:02:00.0" link_speed="32.0 GT/s PCIe" link_width="16"><nic><net name="mlx5_0" dev="0" speed="400000"/>
<net name="mlx5_0" dev="0" net="0" gin="1" speed="400000"/><net name="mlx5_9"/></nic></pci></cpu></system>)");
    CHECK(g.all(site_type::gpu).size() == 3);
    CHECK(g.all(site_type::nic).size() == 1);
    CHECK(find_path(g, g.find("GPU1"), g.find("GPU2")).type == path_class::nvl);
}

TEST_CASE("machines that are written are read again") {
    struct row {
        graph g;
        int sm;
    };
    for (const rate_basis basis : {rate_basis::published, rate_basis::nccl})
        for (const row& want : {row{dgx_1p(basis), 60}, row{dgx_1v(basis), 70}, row{dgx_2(basis), 70},
                                row{dgx_a100(basis), 80}, row{dgx_h100(basis), 90}, row{hgx_b200(basis), 100}}) {
            CAPTURE(want.sm);
            const std::string text = write_nccl_topology(want.g); // the GPUs' links say which they are
            REQUIRE(text == write_nccl_topology(want.g, want.sm));
            const graph again = read_nccl_topology(text, "again", basis);
            REQUIRE(again.size() == want.g.size());
            REQUIRE(again.arcs() == want.g.arcs());
            for (const int s : want.g.all(site_type::nvswitch)) {
                const auto& there = again.at(again.all(site_type::nvswitch).front());
                REQUIRE(there.has_multicast == want.g.at(s).has_multicast);
                REQUIRE(there.has_multicast == (want.sm >= 90));
            }
            for (const site_type from : {site_type::gpu, site_type::nic}) {
                const auto a = want.g.all(site_type::gpu), b = again.all(site_type::gpu);
                const auto to = want.g.all(from), there = again.all(from);
                for (std::size_t i = 0; i < a.size(); ++i)
                    for (std::size_t k = 0; k < to.size(); ++k) {
                        const path p = find_path(want.g, a[i], to[k]), q = find_path(again, b[i], there[k]);
                        REQUIRE(p.type == q.type);
                        REQUIRE(q.bytes_per_s == Approx(p.bytes_per_s));
                    }
            }
        }
    const graph tray = gb200_nvl72(rate_basis::nccl, 1),
                again = read_nccl_topology(write_nccl_topology(tray, 100), "tray", rate_basis::nccl);
    CHECK(find_path(again, again.require("GPU0"), again.require("CPU0")).bytes_per_s == Approx(223.56e9));
    CHECK(find_path(again, again.require("GPU0"), again.require("GPU3")).bytes_per_s == Approx(721.8e9));
}

TEST_CASE("a written GPU has the number of the machine's, whichever CPU of the file comes first") {
    const graph g = dgx_a100(), again = read_nccl_topology(write_nccl_topology(g)); // GPU0 is on NUMA node 3
    int place = 0;
    for (const int s : g.all(site_type::gpu)) {
        const site& there = again.at(again.require(g.name(s)));
        CHECK(there.numa == g.at(s).numa);
        CHECK(there.device == place++);
    }
    place = 0;
    for (const int s : g.all(site_type::nic)) {
        const site& there = again.at(again.require(g.name(s)));
        CHECK(there.numa == g.at(s).numa);
        CHECK(there.device == place++);
    }
}

TEST_CASE("GPUs keep their numbers on their host: in graph files, and in topology files of several hosts") {
    std::string text = "<system version=\"1\">";
    for (const char* host : {"0x1", "0x2"}) {
        text += "<cpu numaid=\"0\" host_hash=\"" + std::string(host) + "\" arch=\"x86_64\">";
        int place = 0;
        for (const char* dev : {"12", "0", "1"}) {
            const std::string bus = "000" + std::string(1, host[2]) + ":0" + std::to_string(place++) + ":00.0";
            text += "<pci busid=\"" + bus + "\"><gpu dev=\"" + dev +
                    "\" sm=\"90\"><nvlink target=\"f:f:f\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>";
        }
        text += "</cpu>";
    }
    const graph g = read_nccl_topology(text + "</system>");
    CHECK(g.at(g.require("GPU12")).device == 12);
    CHECK(g.at(g.require("h1.GPU0")).device == 0);
    const std::vector<int> second{g.require("h1.GPU12"), g.require("h1.GPU1"), g.require("h1.GPU0")};
    const ring_set rings = find_rings(g, second);
    REQUIRE(!rings.rings.empty());
    std::vector<int> devices = nccl_graph_of(g, rings, 1).channels[0].gpus;
    std::sort(devices.begin(), devices.end());
    CHECK(devices == std::vector<int>{0, 1, 12});
    // New versions of NCCL read hexadecimal digits, old ones decimal; the prefix says which.
    const std::string written = write_nccl_graphs({nccl_graph_of(g, rings, 1)});
    CHECK_THAT(written, Contains("<gpu dev=\"0xc\"/>") && Contains("<gpu dev=\"1\"/>"));
    CHECK(read_nccl_graphs(written)[0].channels[0].gpus == nccl_graph_of(g, rings, 1).channels[0].gpus);
    CHECK_THROWS_WITH(nccl_graph_of(g, rings, 0), Contains("passes through no GPU of host 0"));
    const std::string again = write_nccl_topology(g);
    CHECK_THAT(again, Contains("dev=\"12\" sm=\"90\" rank=\"0\"") && Contains("dev=\"12\" sm=\"90\" rank=\"3\""));
    // Two NVSwitch domains would be one in the file.
    CHECK_THROWS_WITH(write_nccl_topology(on_rails(dgx_h100(), 2, 50)),
                      Contains("NVLink joins no GPU of h0.NVSwitch with one of h1.NVSwitch"));
    CHECK_NOTHROW(write_nccl_topology(on_rails(dgx_1v(), 2, 12.5)));
}

TEST_CASE("an NVLink to a CPU leads to the one above the GPU, and a host has at most 256 CPUs") {
    std::string text = "<system version=\"1\">";
    for (const char* cpu : {"0", "8"}) {
        text += "<cpu numaid=\"" + std::string(cpu) + "\" arch=\"ppc64\"><pci busid=\"000" + cpu +
                ":01:00.0\"><gpu dev=\"" + cpu +
                "\" sm=\"70\"><nvlink target=\"ff\" count=\"3\" tclass=\"0x068001\"/></gpu></pci></cpu>";
    }
    const graph g = read_nccl_topology(text + "</system>");
    CHECK(find_path(g, g.require("GPU8"), g.require("CPU8")).type == path_class::nvl);
    CHECK(find_path(g, g.require("GPU8"), g.require("CPU0")).type == path_class::sys);
    std::string many = "<system version=\"1\">";
    for (int cpu = 0; cpu < 256; ++cpu) many += "<cpu numaid=\"" + std::to_string(cpu) + "\" arch=\"arm64\"/>";
    CHECK(what_of(many + "</system>") == "accepted");
    CHECK_THAT(what_of(many + "<cpu numaid=\"256\" arch=\"arm64\"/></system>"),
               Contains("more than 256 CPUs on a host"));
}

TEST_CASE("what is wrong in a topology file is named with its line and the remedy") {
    CHECK(what_of(dump) == "accepted");
    CHECK_THAT(what_of(changed("version=\"1\"", "version=\"2\"")),
               Contains("node.xml:1:") && Contains("version 1 is read"));
    CHECK_THAT(what_of(changed("target=\"0000:07:00.0\"", "target=\"0000:99:00.0\"")),
               Contains("node.xml:7:") && Contains("0000:99:00.0 is no other GPU"));
    CHECK_THAT(what_of(changed("count=\"2\"", "count=\"-2\"")), Contains(":7:") && Contains("1 to 1024"));
    CHECK_THAT(what_of(changed("busid=\"0000:07:00.0\"", "busid=\"0000:06:00.0\"")),
               Contains(":10:") && Contains("comes twice"));
    CHECK_THAT(what_of(changed("rank=\"1\"", "rank=\"0\"")), Contains(":11:") && Contains("rank 0 comes twice"));
    CHECK_THAT(what_of(changed("busid=\"0000:05:00.0\" ", "")), Contains(":4:") && Contains("'busid' is missing"));
    CHECK_THAT(what_of(changed("speed=\"100000\"", "speed=\"fast\"")), Contains(":14:") && Contains("is no number"));
    CHECK_THAT(what_of(changed("<nic>", "<disk/><nic>")), Contains("not known here"));
    CHECK_THAT(what_of(changed("</gpu>\n", "</gpux>\n")), Contains(":8:") && Contains("ends as </gpux>"));
    CHECK_THAT(what_of(changed("-->", "")), Contains("a comment has no end"));
    CHECK_THAT(what_of(changed("dev=\"0\" sm", "dev=\"0\" dev=\"1\" sm")), Contains("comes twice"));
    CHECK_THAT(what_of(changed("gdr=\"1\"", "gdr=1")), Contains(":6:") && Contains("without quotes"));
    CHECK_THAT(what_of(changed("gdr=\"1\"", "gdr=\"&none;\"")), Contains("unknown entity"));
    CHECK_THAT(what_of(std::string(dump) + "<system/>"), Contains("something follows"));
    CHECK_THAT(what_of(""), Contains("expected an element"));
    CHECK_THAT(what_of("<system version=\"1\"/>"), Contains("no <cpu>"));
    CHECK_THAT(what_of(std::string(dump).substr(0, 300)), Contains("has no end"));
    std::string deep;
    for (int i = 0; i < 1000; ++i) deep += "<pci>";
    CHECK_THAT(what_of(deep), Contains("too many elements"));
}

TEST_CASE("devices of one bus id, and elements that the reader would drop, are refused with their lines") {
    const auto below = [](const std::string& devices) {
        return what_of("<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\">\n" + devices + "</cpu></system>");
    };
    const std::string card = "<pci busid=\"A\"><nic><net name=\"m\" dev=\"0\"/></nic></pci>\n",
                      gpu = "<pci busid=\"a\"><gpu dev=\"0\" sm=\"80\"/></pci>\n";
    for (const std::string& second : {card, gpu, std::string("<pci busid=\"a\"/>")})
        for (const std::string& one : {card, gpu, std::string("<pci busid=\"a\"/>\n")})
            CHECK_THAT(below(one + second), Contains("node.xml:3:") && Contains("busid a comes twice"));
    // Hosts have bus ids of their own, and NVLinks lead to GPUs of theirs.
    const std::string link = "<nvlink target=\"b\" count=\"2\" tclass=\"0x030200\"/>";
    std::string two = "<system version=\"1\">";
    for (const char* host : {"0x1", "0x2"})
        two += "<cpu numaid=\"0\" host_hash=\"" + std::string(host) +
               "\" arch=\"x86_64\"><pci busid=\"a\"><gpu dev=\"0\" sm=\"80\">" + link +
               "</gpu></pci><pci busid=\"b\"><gpu dev=\"1\" sm=\"80\"/></pci></cpu>";
    const graph g = read_nccl_topology(two + "</system>");
    CHECK(find_path(g, g.require("h1.GPU0"), g.require("h1.GPU1")).type == path_class::nvl);
    CHECK(find_path(g, g.require("GPU0"), g.require("h1.GPU1")).type == path_class::dis);
    // An NVLink to a card or a PCIe switch is none.
    for (const char* other : {"<pci busid=\"b\"><nic/></pci>", "<pci busid=\"b\"/>"})
        CHECK_THAT(below("<pci busid=\"a\"><gpu dev=\"0\" sm=\"80\">\n" + link + "</gpu></pci>" + other),
                   Contains("node.xml:3:") && Contains("target b is no other GPU"));

    for (const char* beside : {"<nic><net name=\"m\" dev=\"0\"/></nic>", "<foo/>", "<pci busid=\"x\"/>", "<pcilink/>"})
        for (const bool is_first : {false, true}) {
            const std::string a = "\n<gpu dev=\"0\" sm=\"80\"/>", b = "\n" + std::string(beside);
            CHECK_THAT(below("<pci busid=\"a\">" + (is_first ? b + a : a + b) + "</pci>"),
                       Contains(is_first ? "node.xml:3:" : "node.xml:4:") && Contains("not known beside <gpu>"));
        }
    for (const char* outer :
         {"<pci busid=\"a\"><gpu dev=\"0\" sm=\"80\"><nvlink tclass=\"0x068000\">\n<foo/></nvlink></gpu></pci>",
          "<pci busid=\"a\"><gpu dev=\"0\" sm=\"80\"><c2c bw=\"1\">\n<foo/></c2c></gpu></pci>",
          "<nic><net name=\"m\" dev=\"0\">\n<foo/></net></nic>",
          "<pci busid=\"a\"><pcilink target=\"b\">\n<foo/></pcilink></pci>"})
        CHECK_THAT(below(outer), Contains("node.xml:3:") && Contains("<foo>: not known in <"));
}

TEST_CASE("a card of any name is no other site, and errors keep their lines") {
    const graph g = read_nccl_topology(
        R"(<system version="1"><cpu numaid="0" arch="x86_64"><nic><net name="GPU0" dev="0"/><net name="NVSwitch" dev="1"/>
<net name="NVSwitch" dev="2"/><net name="CPU0" dev="3"/><net name="m#8" dev="4"/><net name="m" dev="5"/><net name="m" dev="6"/></nic>
<pci busid="a"><gpu dev="0" sm="90" rank="0"><nvlink target="f" count="18" tclass="0x068000"/></gpu></pci></cpu></system>)");
    CHECK(g.at(g.require("GPU0")).type == site_type::gpu);
    CHECK(g.at(g.require("NVSwitch")).type == site_type::nvswitch);
    CHECK(g.all(site_type::nic).size() == 7);
    CHECK(g.at(g.require("NIC GPU0")).device == 0);
}

TEST_CASE("the XML and topology readers take no time that grows with the square of a file") {
    std::string wide = "<a\n";
    for (int k = 0; k < 64; ++k) wide += " a" + std::to_string(k) + "=''";
    CHECK(read_xml(wide + "/>").attributes.size() == 64);
    CHECK_THROWS_WITH(read_xml(wide + "\n a64=''/>", "w.xml"), Contains("w.xml:3: <a> has more than 64 attributes"));
    std::string many = "<system version=\"1\"><cpu numaid=\"0\" arch=\"x86_64\">";
    for (int k = 1; k < 4096; ++k) many += "<pci busid=\"" + std::to_string(k) + "\"/>";
    CHECK(what_of(many + "</cpu></system>") == "accepted");
    CHECK_THAT(what_of(many + "\n<pci busid=\"x\"/></cpu></system>"),
               Contains("node.xml:2:") && Contains("more than 4096 sites"));
}

TEST_CASE("rings go to a graph file and come back") {
    const graph g = on_rails(dgx_1v(), 2, 12.5);
    const ring_set set = find_rings(g, g.all(site_type::gpu));
    const nccl_graph one = nccl_graph_of(g, set);
    REQUIRE(one.channels.size() == 4);
    for (int k = 0; k < 4; ++k) {
        const nccl_channel& c = one.channels[static_cast<std::size_t>(k)];
        CHECK((c.net_in == k && c.net_out == k && c.gpus.size() == 8));
    }
    const std::string text = write_nccl_graphs({one});
    const auto again = read_nccl_graphs(text, "graph.xml");
    REQUIRE(again.size() == 1);
    CHECK(again[0].channels[2].gpus == one.channels[2].gpus);
    CHECK(again[0].speed_intra == 12.5);
    CHECK(write_nccl_graphs(again) == text);
    const auto refused = [&](const char* from, const char* to) {
        std::string wrong = text;
        wrong.replace(wrong.find(from), std::string(from).size(), to);
        try {
            (void)read_nccl_graphs(wrong, "graph.xml");
        } catch (const invalid_argument& e) {
            return std::string(e.what());
        }
        return std::string("accepted");
    };
    CHECK_THAT(refused("nchannels=\"4\"", "nchannels=\"5\""), Contains("graph.xml:2:") && Contains("and 4 channels"));
    CHECK_THAT(refused("\"NVL\"", "\"XXX\""), Contains(":2:") && Contains("name a class"));
    CHECK_THAT(refused("<gpu dev=\"0\"/>", "<cpu/>"), Contains("'dev' is missing"));
    CHECK_THAT(refused("pattern=\"4\"", "pattern=\"9\""), Contains("1 to 6"));
    CHECK_THAT(refused("version=\"1\"", "version=\"0\""), Contains("version 1"));
    // What would be dropped: a second graph of one id, a GPU twice in a ring, a third card, elements inside of a stop.
    CHECK_THAT(refused("</graph>", "</graph>\n<graph id=\"0\" typeintra=\"NVL\" typeinter=\"PIX\"/>"),
               Contains("id 0 comes twice"));
    CHECK_THAT(refused("<gpu dev=\"0\"/>", "<gpu dev=\"0\"/><gpu dev=\"0\"/>"), Contains("dev 0 comes twice"));
    CHECK_THAT(refused("<net dev=\"0\"/>", "<net dev=\"0\"/><net dev=\"1\"/>"),
               Contains("graph.xml:4:") && Contains("two cards in a row"));
    CHECK_THAT(refused("<gpu dev=\"0\"/>", "<gpu dev=\"0\"><foo/></gpu>"), Contains("<foo>: not known in <gpu>"));
}

TEST_CASE("the matrix of nvidia-smi is read and printed") {
    const std::string text = "\033[4m\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\033[0m\n"
                             "GPU0\t X \tNV12\tPXB\t0-15,64-79\t0\t\tN/A\n"
                             "GPU1\tNV12\t X \tSYS\t16-31,80-95\t1\t\tN/A\n"
                             "NIC0\tPXB\tSYS\t X \n\nLegend:\n\n  X    = Self\n";
    const smi_matrix m = read_smi_matrix(text);
    CHECK(m.names == std::vector<std::string>{"GPU0", "GPU1", "NIC0"});
    CHECK(m.cells[0] == std::vector<std::string>{"X", "NV12", "PXB"});
    CHECK(m.cpus[1] == "16-31,80-95");
    CHECK(m.numa == std::vector<int>{0, 1, -1});
    CHECK(read_smi_matrix("\tGPU0\tGPU1\nGPU0\tX\tSOC\nGPU1\tSOC\tX\n").cells[0][1] == "SYS");

    const smi_matrix a100 = smi_matrix_of(dgx_a100());
    CHECK(a100.cells[0][7] == "NV12");
    CHECK(a100.cells[0][8] == "PXB");
    CHECK(a100.cells[0][15] == "SYS");
    const smi_matrix again = read_smi_matrix(to_text(a100));
    CHECK(again.cells == a100.cells);
    // GPUs of one of several hosts have another name, and a NUMA node all the same.
    const std::string first_host = to_text(smi_matrix_of(on_rails(dgx_a100(), 2, 25)));
    CHECK_THAT(first_host, Contains("\tSYS\tN/A\t3\nh0.GPU1\t"));
    CHECK(first_host.find("N/A", first_host.find("\nh0.NIC0")) == first_host.npos);
    CHECK(again.numa[0] == 3);
    CHECK(smi_matrix_of(dgx_1v()).cells[0][5] == "SYS"); // nvidia-smi does not know paths through a neighbour

    const auto wrong = [&](const char* from, const char* to) {
        std::string bad = text;
        bad.replace(bad.find(from), std::string(from).size(), to);
        try {
            (void)read_smi_matrix(bad, "topo.txt");
        } catch (const invalid_argument& e) {
            return std::string(e.what());
        }
        return std::string("accepted");
    };
    CHECK_THAT(wrong("NV12\tPXB", "NVX\tPXB"), Contains("topo.txt:2:") && Contains("the cell 'NVX'"));
    CHECK_THAT(wrong("GPU1\tNV12", "GPU1\tNV6"), Contains("topo.txt:3:") && Contains("the other way NV12"));
    CHECK_THAT(wrong("NIC0\tPXB\tSYS\t X ", "NIC0\tPXB"), Contains("topo.txt:4:") && Contains("1 cells of 3"));
    CHECK_THAT(wrong("\nGPU1\t", "\nGPU2\t"), Contains("'GPU2' where 'GPU1' is due"));
    CHECK_THAT(wrong("\nNIC0\tPXB\tSYS\t X ", ""), Contains("2 rows of 3"));
    CHECK_THROWS_WITH(read_smi_matrix("\n\tGPU0\tGPU0\nGPU0\tX\tSYS\nGPU0\tSYS\tX\n", "m"),
                      Contains("m:2:") && Contains("'GPU0' comes twice"));
    CHECK_THROWS_WITH(read_smi_matrix("\tGPU0\tGPU1\nGPU0\tX\tNV0\nGPU1\tNV0\tX\n", "m"),
                      Contains("m:2:") && Contains("the cell 'NV0'"));
    CHECK_THROWS_WITH(read_smi_matrix("\tGPU0\nGPU0\tX\nGPU1\tSYS\tX\n", "m"),
                      Contains("m:3:") && Contains("a row of 'GPU1', which has no column"));
    CHECK_THROWS_WITH(read_smi_matrix(""), Contains("0 rows"));
    CHECK_THROWS_WITH(read_smi_matrix("no GPU here\n"), Contains("no header"));
}
