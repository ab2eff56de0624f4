# A file server for each test, with minitest: `ruby millrace_test.rb`.

require 'json'
require 'minitest/autorun'
require 'net/http'
require 'tmpdir'

class MillraceTest < Minitest::Test
  # Starts Millrace on a free port over an empty folder.
  def setup
    @folder = Dir.mktmpdir
    @server = IO.popen([ENV.fetch('MILLRACE', 'millrace'), 'serve', @folder, '--ftp', 'off',
                        '--http', '127.0.0.1:0', '--ready-json', '--quiet'])
    @url = JSON.parse(@server.gets)['http'][0]['url']
  end

  def teardown
    Process.kill('TERM', @server.pid)
    @server.close
    FileUtils.remove_entry(@folder)
  end

  def test_a_file_is_there_by_http
    File.write(File.join(@folder, 'report.txt'), 'hello')
    assert_equal 'hello', Net::HTTP.get(URI("#{@url}report.txt"))
  end
end
