<?php
// A Laravel application with the middleware and the layout of new ones: a page, a form, flash messages and a sign-in.
// Its files are in the directory that APP_BASE names.

error_reporting(E_ALL & ~E_DEPRECATED);
require 'Illuminate/autoload.php';

use Illuminate\Foundation\Bootstrap;
use Illuminate\Support\Arr;
use Illuminate\Support\Facades\Cookie;
use Illuminate\Support\Facades\Route;

// guide: middleware
// A visitor whose session has more than a token, such as a message or a sign-in, has the cookie `personal`, too.
class PersonalCookie
{
    public function handle($request, Closure $next)
    {
        $response = $next($request);
        $session = $request->session();
        $read = $session->get('_flash.old', []);
        if (Arr::except($session->all(), ['_token', '_previous', '_flash', ...$read])) {
            Cookie::queue('personal', '1', 525600, '/');
        } elseif ($request->cookies->has('personal')) {
            Cookie::queue(Cookie::forget('personal', '/'));
        }
        return $response;
    }
}
// end

class Configure
{
    public function bootstrap($app)
    {
        $base = $app->basePath();
        $app->instance('config', new Illuminate\Config\Repository([
            'app' => ['key' => str_repeat('k', 32), 'cipher' => 'AES-256-CBC', 'env' => 'production', 'debug' => false, 'aliases' => [], 'providers' => [
                Illuminate\Cookie\CookieServiceProvider::class,
                Illuminate\Encryption\EncryptionServiceProvider::class,
                Illuminate\Filesystem\FilesystemServiceProvider::class,
                Illuminate\Foundation\Providers\FoundationServiceProvider::class,
                Illuminate\Session\SessionServiceProvider::class,
                Illuminate\Translation\TranslationServiceProvider::class,
                Illuminate\Validation\ValidationServiceProvider::class,
                Illuminate\View\ViewServiceProvider::class,
            ], 'locale' => 'en', 'fallback_locale' => 'en'],
            'logging' => ['default' => 'null', 'channels' => ['null' => ['driver' => 'monolog', 'handler' => Monolog\Handler\NullHandler::class]]],
            'session' => ['driver' => 'file', 'lifetime' => 120, 'expire_on_close' => false, 'encrypt' => false, 'files' => "$base/storage/framework/sessions",
                'lottery' => [0, 100], 'cookie' => 'laravel_session', 'path' => '/', 'domain' => null, 'secure' => null, 'http_only' => true, 'same_site' => 'lax'],
            'view' => ['paths' => [__DIR__ . '/views'], 'compiled' => "$base/storage/framework/views"],
        ]));
        $app->detectEnvironment(fn () => 'production');
    }
}

class Kernel extends Illuminate\Foundation\Http\Kernel
{
    protected $bootstrappers = [Configure::class, Bootstrap\HandleExceptions::class, Bootstrap\RegisterFacades::class, Bootstrap\RegisterProviders::class,
        Bootstrap\BootProviders::class];
    protected $middlewareGroups = ['web' => [
        Illuminate\Cookie\Middleware\EncryptCookies::class,
        Illuminate\Cookie\Middleware\AddQueuedCookiesToResponse::class,
        Illuminate\Session\Middleware\StartSession::class,
        Illuminate\View\Middleware\ShareErrorsFromSession::class,
        Illuminate\Foundation\Http\Middleware\VerifyCsrfToken::class,
        Illuminate\Routing\Middleware\SubstituteBindings::class,
        PersonalCookie::class,
    ]];
}

$app = new Illuminate\Foundation\Application(getenv('APP_BASE'));
$app->singleton(Illuminate\Contracts\Http\Kernel::class, Kernel::class);
$app->singleton(Illuminate\Contracts\Debug\ExceptionHandler::class, Illuminate\Foundation\Exceptions\Handler::class);
$app->booted(fn () => Route::middleware('web')->group(function () {
    Route::view('/', 'home');
    Route::view('/contact', 'form', ['action' => '/contact']);
    Route::post('/contact', function () {
        request()->validate(['text' => 'required']);
        return redirect('/')->with('notice', 'Thanks for ' . request('text'));
    });
    Route::view('/login', 'form', ['action' => '/login']);
    Route::post('/login', function () {
        session()->regenerate();
        session(['name' => request('text')]);
        return redirect('/');
    });
    Route::post('/logout', function () {
        session()->invalidate();
        return redirect('/');
    });
    // guide: route
    Route::get('/csrf-token', fn () => response(csrf_token())
        ->header('Content-Type', 'text/plain')->header('Cache-Control', 'no-store'));
    // end
}));
$kernel = $app->make(Illuminate\Contracts\Http\Kernel::class);
$request = Illuminate\Http\Request::capture();
$response = $kernel->handle($request)->send();
$kernel->terminate($request, $response);
