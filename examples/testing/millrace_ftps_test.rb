# FTP with TLS in a test, with minitest and net/ftp: `ruby millrace_ftps_test.rb`.
# The server has accounts and a tree of its own, and makes its certificate itself.

require 'json'
require 'minitest/autorun'
require 'net/ftp'
require 'tmpdir'

# A connection that begins with TLS. (A later net-ftp than Debian 12's has `implicit_ftps: true` for it.)
class ImplicitFTP < Net::FTP
  def connect(host, port = 990)
    @host = host
    @bare_sock = open_socket(host, port)
    set_socket(BufferedSSLSocket.new(start_tls_session(@bare_sock), read_timeout: @read_timeout))
    voidcmd('PBSZ 0')
    voidcmd('PROT P')
  end
end

class MillraceFtpsTest < Minitest::Test
  # Starts Millrace on free ports: alice may write in `inbox`, bob may only read, all of it.
  def setup
    @folder = Dir.mktmpdir
    FileUtils.mkdir_p(File.join(@folder, 'files', 'inbox'))
    File.write(File.join(@folder, 'files', 'report.txt'), 'hello')
    @server = IO.popen([ENV.fetch('MILLRACE', 'millrace'), 'serve', File.join(@folder, 'files'),
                        '--ftp', '127.0.0.1:0', '--ftps', '127.0.0.1:0', '--http', 'off', '--users', 'off',
                        '--user', 'alice:s3cret:rw:inbox', '--user', 'bob:other:ro',
                        '--tls-self-signed', '--tls-required', 'data', '--state', File.join(@folder, 'state'),
                        '--ready-json', '--quiet'], err: File::NULL)
    @ready = JSON.parse(@server.gets)
  end

  def teardown
    Process.kill('TERM', @server.pid)
    @server.close
    FileUtils.remove_entry(@folder)
  end

  # Logs in by either kind of TLS. `ca_file` in place of `verify_mode` where there is a certificate that can be verified.
  def log_in(kind, user, password)
    client, key = { explicit: [Net::FTP, 'ftp'], implicit: [ImplicitFTP, 'ftps'] }.fetch(kind)
    client.open('127.0.0.1', port: @ready[key][0]['port'], ssl: { verify_mode: OpenSSL::SSL::VERIFY_NONE },
                             username: user, password: password) { |ftp| yield ftp }
  end

  %i[explicit implicit].each do |kind|
    define_method("test_files_move_both_ways_by_#{kind}_tls") do
      log_in(kind, 'alice', 's3cret') do |ftp|
        ftp.storbinary('STOR new.txt', StringIO.new('from alice'), Net::FTP::DEFAULT_BLOCKSIZE)
        assert_equal ['new.txt'], ftp.nlst
      end
      assert_equal 'from alice', File.read(File.join(@folder, 'files', 'inbox', 'new.txt'))
      log_in(kind, 'bob', 'other') do |ftp|
        assert_equal 'hello', ftp.getbinaryfile('report.txt', nil)
        assert_raises(Net::FTPPermError) { ftp.delete('report.txt') }
      end
      assert_raises(Net::FTPPermError) { log_in(kind, 'bob', 'wrong') { flunk } }
    end
  end

  def test_a_login_without_tls_is_refused
    Net::FTP.open('127.0.0.1', port: @ready['ftp'][0]['port']) do |ftp|
      assert_raises(Net::FTPPermError) { ftp.login('alice', 's3cret') }
    end
  end
end
