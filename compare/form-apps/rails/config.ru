# A Rails application with the layout that `rails new` writes: a page, a form, flash messages and a sign-in.

require "logger"
require "action_controller/railtie"

class Shop < Rails::Application
  config.load_defaults Rails::VERSION::STRING.to_f
  config.root = __dir__
  config.eager_load = false
  config.consider_all_requests_local = false
  config.secret_key_base = "0" * 64
  config.logger = Logger.new($stderr, level: :fatal)
  config.session_store :cookie_store, key: "_shop_session"
end

class PagesController < ActionController::Base
  layout "application"
  prepend_view_path "#{__dir__}/views"
  # As new applications do; a request without the token gets 422.
  protect_from_forgery with: :exception

  def home = nil
  def contact = nil
  def login = nil

  def send_contact
    redirect_to "/", notice: "Thanks for #{params[:text]}"
  end

  def sign_in
    reset_session
    session[:name] = params[:text]
    redirect_to "/"
  end

  def sign_out
    reset_session
    redirect_to "/"
  end
end

# guide: controller
class TokensController < ActionController::Base
  def show
    # A session that has a token stays as it is: another request may be changing it.
    request.session_options[:skip] = session[:_csrf_token].present?
    response.headers["Cache-Control"] = "no-store"
    render plain: form_authenticity_token
  end
end
# end

# guide: middleware
# A visitor whose session has more than a token, such as a message or a sign-in, has the cookie `personal`, too.
class PersonalCookie
  def initialize(app) = @app = app

  def call(env)
    response = @app.call(env)
    request = ActionDispatch::Request.new(env)
    return response if request.session_options[:skip]
    cookies = request.cookie_jar
    if (request.session.keys.map(&:to_s) - %w[session_id _csrf_token]).any?
      cookies[:personal] = { value: "1", path: "/", expires: 1.year, httponly: true }
    elsif cookies.key?(:personal)
      cookies.delete(:personal, path: "/")
    end
    response
  end
end

Rails.application.config.middleware.use PersonalCookie
# end

Shop.routes.append do
  root to: "pages#home"
  get "/contact", to: "pages#contact"
  post "/contact", to: "pages#send_contact"
  get "/login", to: "pages#login"
  post "/login", to: "pages#sign_in"
  post "/logout", to: "pages#sign_out"
  get "/csrf-token", to: "tokens#show"
end
Shop.initialize!

run Shop
